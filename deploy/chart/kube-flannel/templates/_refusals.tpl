{{/* What asks for something that is not built, or would not come up. Each ends the rendering with what to do instead. */}}
{{- define "flannel.refusals" -}}
{{- $flannel := .Values.flannel -}}
{{- $built := list "vxlan" "host-gw" "wireguard" "ipsec" "ipip" "udp" "extension" "aws-vpc" "gce" "tencent-vpc" "ali-vpc" "alloc" -}}
{{- if not (has $flannel.backend $built) -}}
  {{- fail (printf "flannel.backend is %q, which is not built: write one of %s" (toString $flannel.backend) (join ", " $built)) -}}
{{- end -}}
{{- if hasKey ($flannel.backendOptions | default dict) "Type" -}}
  {{- fail "flannel.backendOptions has the key Type: write it as flannel.backend" -}}
{{- end -}}
{{- if and (eq $flannel.backend "ipsec") (lt (len (toString $flannel.psk)) 96) (not (hasKey ($flannel.backendOptions | default dict) "PSK")) -}}
  {{- fail "flannel.backend is ipsec, which needs a secret of at least 96 characters in flannel.psk: `openssl rand -hex 48` prints one" -}}
{{- end -}}
{{- if and $flannel.psk (not (has $flannel.backend (list "wireguard" "ipsec"))) -}}
  {{- fail (printf "flannel.psk belongs to the backends wireguard and ipsec, and flannel.backend is %s: leave it out" $flannel.backend) -}}
{{- end -}}
{{- if ne $flannel.backend "wireguard" -}}
  {{- range $key := list "backendPortv6" "tunnelMode" "keepaliveInterval" -}}
    {{- if get $flannel $key -}}
      {{- fail (printf "flannel.%s belongs to the backend wireguard, and flannel.backend is %s: leave it out" $key $flannel.backend) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if not (or .Values.podCidr .Values.podCidrv6) -}}
  {{- fail "podCidr and podCidrv6 are both empty: give the pod network of one family at least" -}}
{{- end -}}
{{- with get (fromJson $flannel.cniConf) "Error" -}}
  {{- fail (printf "flannel.cniConf is no JSON object, and no pod would start with it: %s" .) -}}
{{- end -}}
{{- if and $flannel.metrics.podMonitor.enabled (not (int $flannel.metrics.port)) -}}
  {{- fail "flannel.metrics.podMonitor is enabled, and flannel.metrics.port is 0" -}}
{{- end -}}
{{- if and (int $flannel.metrics.port) (eq (int $flannel.metrics.port) (int $flannel.healthz.port)) -}}
  {{- fail (printf "flannel.metrics.port and flannel.healthz.port are both %d: choose another for one" (int $flannel.metrics.port)) -}}
{{- end -}}
{{- if ne (empty $flannel.k8sServiceHost) (eq (int $flannel.k8sServicePort) 0) -}}
  {{- fail "flannel.k8sServiceHost and flannel.k8sServicePort go together: give both" -}}
{{- end -}}
{{- $store := false -}}
{{- range concat ($flannel.args | default list) ($flannel.extraArgs | default list) -}}
  {{- if regexMatch "^--?(kube-subnet-mgr|etcd-endpoints)" (toString .) }}{{ $store = true }}{{ end -}}
{{- end -}}
{{- range $flannel.extraEnv -}}
  {{- if has .name (list "FLANNELD_KUBE_SUBNET_MGR" "FLANNELD_ETCD_ENDPOINTS") }}{{ $store = true }}{{ end -}}
{{- end -}}
{{- if and $flannel.args (not $store) -}}
  {{- fail "flannel.args replaces all flags, and names no store: add --kube-subnet-mgr (or --etcd-endpoints=URL), or write more flags in flannel.extraArgs" -}}
{{- end -}}
{{- if regexMatch "(^|/)(flannel-io|coreos)/flannel$|^((index\\.)?docker\\.io/)?flannel/flannel$|(^|/)(mirrored|hardened)-([a-z-]+-)?flannel$" $flannel.image.repository -}}
  {{- fail (printf "flannel.image.repository is %s, stock flannel's image: name the one made by `cargo xtask image`" $flannel.image.repository) -}}
{{- end -}}
{{- end -}}
