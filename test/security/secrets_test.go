package security_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gpu-exporter/gpu-exporter/internal/must"
	"github.com/gpu-exporter/gpu-exporter/internal/standin/machine"
)

// formats are the media types of the metrics.
var formats = map[string]string{
	"text":        "",
	"OpenMetrics": "application/openmetrics-text;version=1.0.0",
	"protobuf":    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
}

// No secret that passes through the exporter is exposed, at the most verbose log level, whether the API server responds
// or fails.
func TestNoSecretIsExposed(t *testing.T) {
	t.Parallel()
	const (
		token             = "the-token-of-a-service-account"
		environ           = "the-environment-of-a-process"
		envSecret         = "the-environment-that-a-plugin-gave"
		engine            = "the-environment-of-a-container"
		annotation, label = "the-annotation-of-a-pod", "the-label-of-a-pod"
	)
	for _, api := range []string{"responds", "refuses", "echoes", "denies", "fails"} {
		t.Run("the API server "+api, func(t *testing.T) {
			t.Parallel()
			n := machine.Parse(t, twoGPUs+"process gpu=1 pid=4242 memory=1GiB busy=50% period=1s\n",
				twoPods+"pod ml/sharer container main nvidia.com/gpu="+GPUB+"-1 pids=4242 env=PASSWORD:"+environ+
					" env=NVIDIA_VISIBLE_DEVICES:"+GPUB+"\n")
			response, err := proto.Marshal(&deviceplugin.ContainerAllocateResponse{Envs: map[string]string{"PASSWORD": envSecret,
				"NVIDIA_VISIBLE_DEVICES": GPUB},
				Annotations: map[string]string{"secret": envSecret}})
			must.OK(t, err)
			write(t, filepath.Join(n.Dir, "token"), token+"\n")
			write(t, filepath.Join(n.Dir, "checkpoint"),
				fmt.Sprintf(
					`{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"main","ResourceName":"nvidia.com/gpu",`+
						`"DeviceIDs":{"-1":[%q]},"AllocResp":%q}],"RegisteredDevices":{}},"Checksum":1}`,
					GPUB+"-1", base64.StdEncoding.EncodeToString(response)))
			asked := make(chan struct{}, 100)
			api := apiServer(t, filepath.Join(n.Dir, "ca.crt"), func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Authorization"); got != "Bearer "+token {
					t.Errorf("the API server is shown %q", got)
				}
				select {
				case asked <- struct{}{}:
				default:
				}
				switch api {
				case "responds":
					fmt.Fprintf(w,
						`{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"sharer","namespace":"ml","uid":"u",`+
							`"labels":{"l":%q},"annotations":{"a":%q}}}]}`, label, annotation)
				case "refuses":
					http.Error(w, "not with "+r.Header.Get("Authorization"), http.StatusUnauthorized)
				case "denies":
					http.Error(w, "not with "+r.Header.Get("Authorization"), http.StatusForbidden)
				case "echoes":
					http.Error(w, fmt.Sprintf("broken: %v", r.Header), http.StatusInternalServerError)
				default:
					fmt.Fprintf(w, `{"metadata":{"resourceVersion":1},"items":%q`, r.Header.Get("Authorization"))
				}
			})
			socket := filepath.Join(filepath.Dir(n.Socket), "docker.sock")
			engineServer(t, socket, fmt.Sprintf(`[{"Id":"%064d","Names":["/c"],"Command":%q,"Labels":{"x":%q}}]`, 1, engine, engine))
			config := machine.WebConfig(t, n.Dir, machine.Web{Users: true})
			hash := must.Read(t, config)
			key := must.Read(t, filepath.Join(n.Dir, "key.pem"))
			e := n.Start(t, machine.Options{Env: []string{"PASSWORD_OF_THE_EXPORTER=the-environment-of-the-exporter"},
				Flags: append([]string{"--log.level=debug", "--compat=dcgm-4.9", "--kubelet.checkpoint=" + n.Dir + "/checkpoint",
					"--kubernetes.pods",
					"--kubernetes.api-server=" + api.URL, "--kubernetes.token-file=" + n.Dir + "/token",
					"--kubernetes.ca-file=" + n.Dir + "/ca.crt",
					"--containers.visible", "--slurm.job-numbers", "--containers.socket=" + socket,
					"--web.config.file=" + config}, quick...)})
			e.TLS = true
			client := trusting(t, filepath.Join(n.Dir, "cert.pem"))
			<-asked
			secrets := map[string]string{"the token": token, "an environment": environ, "a plugin's response": envSecret,
				"an engine's response": engine, "an annotation": annotation,
				"a label": label, "the password": machine.Password,
				"the password in the header": base64.StdEncoding.EncodeToString([]byte("prometheus:" + machine.Password)),
				"the exporter's environment": "the-environment-of-the-exporter",
				"the password's hash":        strings.TrimSpace(hash[strings.Index(hash, "$2"):]),
				"the key":                    strings.Split(key, "\n")[1]}
			var seen []string
			await(t, client, e.Base(), machine.Password, "gpu_device_up{", `pod="sharer"`)
			time.Sleep(2500 * time.Millisecond) // every poll group, and the first response of the API server on the page
			for _, path := range []string{"/", "/metrics", "/metrics/dcgm", "/-/healthy", "/-/ready", "/nothing"} {
				for name, accept := range formats {
					status, body := askAs(t, client, e.Base()+path, machine.Password, "Accept", accept)
					if status == 0 {
						t.Errorf("%s as %s: %s", path, name, body)
					}
					seen = append(seen, body)
				}
			}
			askAs(t, client, e.Base()+"/", "a-password-that-was-mistyped")
			secrets["a mistyped password"] = "a-password-that-was-mistyped"
			e.Stop()
			seen = append(seen, e.Said())
			if !strings.Contains(e.Said(), "level=DEBUG") && !strings.Contains(e.Said(), "level=INFO") {
				t.Errorf("the log is empty: %s", e.Said())
			}
			for _, text := range seen {
				for name, secret := range secrets {
					if at := strings.Index(text, secret); at >= 0 {
						t.Errorf("%s is exposed: …%s…", name, text[max(0, at-200):at+len(secret)])
					}
				}
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must.OK(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)))
}
