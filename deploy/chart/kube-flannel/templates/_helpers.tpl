{{/* Maps into one, the first that has a key decides */}}
{{- define "flannel.merged" -}}
{{- $all := dict -}}
{{- range . }}{{ $all = merge $all (. | default dict) }}{{ end -}}
{{- with $all }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* Labels and annotations of an object: (list $ (list labels...) (list annotations...)) */}}
{{- define "flannel.about" -}}
{{- $root := first . -}}
{{- $global := $root.Values.global -}}
{{- $chart := printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" -}}
{{- $own := dict
  "k8s-app" "flannel"
  "helm.sh/chart" $chart
  "app.kubernetes.io/name" $root.Chart.Name
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "app.kubernetes.io/managed-by" $root.Release.Service -}}
labels:
  {{- include "flannel.merged" (concat (index . 1) (list $global.commonLabels $own)) | nindent 2 }}
{{- with include "flannel.merged" (append (index . 2) $global.commonAnnotations) }}
annotations:
  {{- nindent 2 . }}
{{- end }}
{{- end -}}

{{- define "flannel.image" -}}
{{- $image := .Values.flannel.image -}}
{{- $version := printf ":%s" ($image.tag | default .Chart.AppVersion) -}}
{{- with $image.digest }}{{ $version = printf "@%s" . }}{{ end }}
image: {{ printf "%s%s" $image.repository $version | quote }}
{{- with $image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end -}}

{{/* The flags of the agent. Of ours those alone whose value was chosen */}}
{{- define "flannel.args" -}}
{{- $args := list -}}
{{- range concat (.args | default list) (.extraArgs | default list) }}{{ $args = append $args (toString .) }}{{ end -}}
{{- if int .healthz.port -}}
  {{- with .healthz.ip }}{{ $args = append $args (printf "--healthz-ip=%s" .) }}{{ end -}}
  {{- $args = append $args (printf "--healthz-port=%d" (int .healthz.port)) -}}
{{- end -}}
{{- if int .metrics.port -}}
  {{- $args = append $args (printf "--metrics-ip=%s" (.metrics.ip | default "$(POD_IP)")) -}}
  {{- $args = append $args (printf "--metrics-port=%d" (int .metrics.port)) -}}
{{- end -}}
{{- with .ipMasqExclude }}{{ $args = append $args (printf "--ip-masq-exclude=%s" (join "," .)) }}{{ end -}}
{{- with int .flowTableSize }}{{ $args = append $args (printf "--flow-table-size=%d" .) }}{{ end -}}
{{- range $flag, $value := dict
  "guard-outer" .guardOuter
  "guard-inner" .guardInner
  "xdp-guard" .xdpGuard
  "fast-scope" .fastScope
  "log-format" .logFormat -}}
  {{- /* A bare off is false in YAML. */ -}}
  {{- if kindIs "bool" $value }}{{ $value = "off" }}{{ end -}}
  {{- with $value }}{{ $args = append $args (printf "--%s=%s" $flag .) }}{{ end -}}
{{- end -}}
{{- range $flag, $value := dict "strict-rules" .strictRules "conntrack-liberal" .conntrackLiberal -}}
  {{- if kindIs "bool" $value }}{{ $args = append $args (printf "--%s=%t" $flag $value) }}{{ end -}}
{{- end -}}
{{- if .podOptOut }}{{ $args = append $args "--pod-opt-out" }}{{ end -}}
{{- toYaml $args -}}
{{- end -}}

{{/* Where the kubelet asks: loopback, unless the checks are at one address alone. An empty address is any of IPv4 */}}
{{- define "flannel.probeHost" -}}
{{- $ip := .healthz.ip | default "0.0.0.0" -}}
{{- get (dict "0.0.0.0" "127.0.0.1" "::" "::1") $ip | default $ip | quote -}}
{{- end -}}

{{/* The prefix of annotations on Nodes, in quotes, by the flag of it if there is one */}}
{{- define "flannel.annotationPrefix" -}}
{{- $prefix := "flannel.alpha.coreos.com" -}}
{{- range concat (.Values.flannel.args | default list) (.Values.flannel.extraArgs | default list) -}}
  {{- if hasPrefix "--kube-annotation-prefix=" (toString .) }}{{ $prefix = trimPrefix "--kube-annotation-prefix=" (toString .) }}{{ end -}}
{{- end -}}
{{- if not (contains "/" $prefix) }}{{ $prefix = printf "%s/" $prefix }}{{ end -}}
{{- if not (regexMatch "[-/]$" $prefix) }}{{ $prefix = printf "%s-" $prefix }}{{ end -}}
{{ squote $prefix }}
{{- end -}}

{{/* Annotations of the pods */}}
{{- define "flannel.podAnnotations" -}}
{{- $flannel := .Values.flannel -}}
{{- $metrics := dict -}}
{{- if and $flannel.metrics.annotations (int $flannel.metrics.port) -}}
  {{- $port := toString (int $flannel.metrics.port) -}}
  {{- $metrics = dict "prometheus.io/scrape" "true" "prometheus.io/port" $port "prometheus.io/path" "/metrics" -}}
{{- end -}}
{{- $profile := dict -}}
{{- with $flannel.appArmorProfile -}}
  {{- $profile = dict "container.apparmor.security.beta.kubernetes.io/kube-flannel" . -}}
{{- end -}}
{{- /* The agent reads its configuration at its start: another one replaces the pods, one after the other. */ -}}
{{- $config := dict "checksum/config" (printf "%s%s" (include "flannel.netConf" .) $flannel.cniConf | sha256sum) -}}
{{- $container := dict "kubectl.kubernetes.io/default-container" "kube-flannel" -}}
{{- include "flannel.merged" (list $flannel.podAnnotations .Values.global.commonAnnotations $container $config $metrics $profile) -}}
{{- end -}}

{{/* net-conf.json */}}
{{- define "flannel.netConf" -}}
{{- $flannel := .Values.flannel -}}
{{- $backend := dict "Type" $flannel.backend -}}
{{- if eq $flannel.backend "vxlan" -}}
  {{- range $key, $value := dict "Port" $flannel.backendPort "VNI" $flannel.vni "MTU" $flannel.mtu -}}
    {{- if $value }}{{ $_ := set $backend $key (int $value) }}{{ end -}}
  {{- end -}}
  {{- range $key, $value := dict "GBP" $flannel.GBP "DirectRouting" $flannel.directRouting "MacPrefix" $flannel.macPrefix -}}
    {{- if $value }}{{ $_ := set $backend $key $value }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- if eq $flannel.backend "wireguard" -}}
  {{- range $key, $value := dict "ListenPort" $flannel.backendPort "ListenPortV6" $flannel.backendPortv6 "MTU" $flannel.mtu "PersistentKeepaliveInterval" $flannel.keepaliveInterval -}}
    {{- if $value }}{{ $_ := set $backend $key (int $value) }}{{ end -}}
  {{- end -}}
  {{- range $key, $value := dict "PSK" $flannel.psk "Mode" $flannel.tunnelMode -}}
    {{- if $value }}{{ $_ := set $backend $key (toString $value) }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- if eq $flannel.backend "ipsec" -}}
  {{- with $flannel.psk }}{{ $_ := set $backend "PSK" (toString .) }}{{ end -}}
{{- end -}}
{{- if has $flannel.backend (list "ipip" "udp") -}}
  {{- with $flannel.mtu }}{{ $_ := set $backend "MTU" (int .) }}{{ end -}}
{{- end -}}
{{- if eq $flannel.backend "ipip" -}}
  {{- with $flannel.directRouting }}{{ $_ := set $backend "DirectRouting" . }}{{ end -}}
{{- end -}}
{{- if eq $flannel.backend "udp" -}}
  {{- with $flannel.backendPort }}{{ $_ := set $backend "Port" (int .) }}{{ end -}}
{{- end -}}
{{- with $flannel.datapath }}{{ $_ := set $backend "Datapath" . }}{{ end -}}
{{- range $key, $value := $flannel.backendOptions }}{{ $_ := set $backend $key $value }}{{ end -}}
{{- $conf := dict "Backend" $backend -}}
{{- if ne (toString $flannel.enableNFTables) "auto" }}{{ $_ := set $conf "EnableNFTables" ($flannel.enableNFTables | default false) }}{{ end -}}
{{- if .Values.podCidr }}{{ $_ := set $conf "Network" .Values.podCidr }}{{ else }}{{ $_ := set $conf "EnableIPv4" false }}{{ end -}}
{{- with .Values.podCidrv6 }}{{ $_ := set (set $conf "IPv6Network" .) "EnableIPv6" true }}{{ end -}}
{{- toPrettyJson $conf -}}
{{- end -}}
