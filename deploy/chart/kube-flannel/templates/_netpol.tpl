{{/* The container that keeps NetworkPolicies, where netpol.enabled asks for it. */}}
{{- define "flannel.netpol" -}}
- name: kube-network-policies
  image: {{ printf "%s:%s" .image.repository .image.tag | quote }}
  command: [/bin/netpol]
  {{- with .args }}
  args:
    {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    privileged: true
  env:
  - name: MY_NODE_NAME
    valueFrom:
      fieldRef:
        fieldPath: spec.nodeName
  volumeMounts:
  - name: lib-modules
    mountPath: /lib/modules
    readOnly: true
{{- end -}}
