# A host that has everything.
for profile in hardened systemd docker kube-proxy firewalld flannel; do
  . "$PROFILES/$profile.sh"
done
