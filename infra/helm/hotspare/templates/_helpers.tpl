{{/* Labels of everything in the release. */}}
{{- define "hotspare.labels" -}}
app.kubernetes.io/name: hotspare
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Labels that find the pods of a part: (list $ "part"). They never change. */}}
{{- define "hotspare.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: hotspare
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "hotspare.image" -}}
{{- $repository := required "image.repository: the image of Hotspare, built by docker build -f docker/Dockerfile" .Values.image.repository -}}
{{- if .Values.image.digest }}{{ $repository }}@{{ .Values.image.digest }}
{{- else }}{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "hotspare.account" -}}
{{- if .Values.observe }}hotspare-observe{{ else }}hotspare{{ end }}
{{- end }}

{{- define "hotspare.scheme" -}}
{{- if .Values.intake.tlsSecretName }}https{{ else }}http{{ end }}
{{- end }}

{{/*
The objects of a manifest of Hotspare, (list $ "rbac.yaml"), as the release has them: in its namespace, with its labels. The manifests
are those that `kubectl apply` takes; nothing of them is said again here.
*/}}
{{- define "hotspare.objects" -}}
{{- $root := index . 0 }}
{{- $text := $root.Files.Get (printf "files/%s" (index . 1)) | required (printf "files/%s is not in the chart: take the one that `hotspare manifests DIR` writes" (index . 1)) }}
{{- range $document := regexSplit "(?m)^---\\s*$" $text -1 }}
{{- $object := fromYaml $document }}
{{- if $object.Error }}{{ fail $object.Error }}{{ end }}
{{- if and $object.kind (ne $object.kind "Namespace") }}
{{- $_ := set $object.metadata "labels" (merge (default dict $object.metadata.labels) (fromYaml (include "hotspare.labels" $root))) }}
{{- if hasKey $object.metadata "namespace" }}{{ $_ := set $object.metadata "namespace" $root.Release.Namespace }}{{ end }}
{{- range $subject := $object.subjects }}
{{- if hasKey $subject "namespace" }}{{ $_ := set $subject "namespace" $root.Release.Namespace }}{{ end }}
{{- end }}
{{- if and (eq $object.kind "ServiceAccount") $root.Values.serviceAccount.annotations }}
{{- $_ := set $object.metadata "annotations" $root.Values.serviceAccount.annotations }}
{{- end }}
{{- if eq $object.kind "DaemonSet" }}{{ $_ := include "hotspare.agent" (list $root $object) }}{{ end }}
{{ "---" }}
{{ toYaml $object }}
{{- end }}
{{- end }}
{{ end }}

{{/* Puts the values of the agent into its DaemonSet: (list $ object). Renders nothing. */}}
{{- define "hotspare.agent" -}}
{{- $root := index . 0 }}
{{- $pod := (index . 1).spec.template.spec }}
{{- $agent := index $pod.containers 0 }}
{{- $_ := set $agent "image" (include "hotspare.image" $root) }}
{{- $_ := set $agent "imagePullPolicy" $root.Values.image.pullPolicy }}
{{- if $root.Values.imagePullSecrets }}{{ $_ := set $pod "imagePullSecrets" $root.Values.imagePullSecrets }}{{ end }}
{{- range $key := list "tolerations" "affinity" }}
{{- with index $root.Values.agent $key }}{{ $_ := set $pod $key . }}{{ end }}
{{- end }}
{{- with $root.Values.agent.resources }}{{ $_ := set $agent "resources" . }}{{ end }}
{{- $here := printf "%s://hotspare-intake.%s:%v" (include "hotspare.scheme" $root) $root.Release.Namespace $root.Values.intake.port }}
{{- range $variable := $agent.env }}
{{- if eq $variable.name "HOTSPARE_INTAKE" }}{{ $_ := set $variable "value" ($root.Values.agent.intake | default $here) }}{{ end }}
{{- end }}
{{- range $volume := $pod.volumes }}
{{- if eq $volume.name "intake" }}{{ $_ := set $volume.secret "secretName" $root.Values.intake.tokenSecretName }}{{ end }}
{{- end }}
{{- with $root.Values.agent.caSecretName }}
{{- $_ := set $agent "env" (append $agent.env (dict "name" "HOTSPARE_INTAKE_CA" "value" "/etc/hotspare-intake-ca/ca.crt")) }}
{{- $_ := set $agent "volumeMounts" (append $agent.volumeMounts (dict "name" "intake-ca" "mountPath" "/etc/hotspare-intake-ca" "readOnly" true)) }}
{{- $_ := set $pod "volumes" (append $pod.volumes (dict "name" "intake-ca" "secret" (dict "secretName" .))) }}
{{- end }}
{{- end }}
