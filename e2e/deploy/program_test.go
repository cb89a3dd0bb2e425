package deploy

import (
	"bufio"
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// build compiles the program as the Dockerfile does.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "tailor")
	cmd := exec.Command("go", "build", "-C", "../..", "-trimpath", "-o", binary, "./cmd/tailor")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// start runs the program until the test ends and returns the address that it prints.
func start(t *testing.T, binary string, args ...string) string {
	t.Helper()
	cmd := exec.Command(binary, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	found := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			for _, word := range strings.Fields(lines.Text()) {
				if strings.HasPrefix(word, "http://") {
					select {
					case found <- strings.TrimSuffix(word, ","):
					default:
					}
				}
			}
		}
	}()
	select {
	case url := <-found:
		return url
	case <-time.After(30 * time.Second):
		t.Fatalf("tailor %s: no address after 30 s\n%s", strings.Join(args, " "), stderr.String())
		return ""
	}
}

// replaced are the arguments with other values for some flags, which must be there.
func replaced(t *testing.T, args []string, values map[string]string) []string {
	t.Helper()
	var out []string
	done := map[string]bool{}
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(strings.TrimPrefix(args[i], "--"), "=")
		v, ok := values[name]
		if !ok {
			out = append(out, args[i])
			continue
		}
		done[name] = true
		if out = append(out, strings.Fields(v)...); !joined {
			i++
		}
	}
	if len(done) != len(values) {
		t.Fatalf("%v: not all of %v are there", args, values)
	}
	return out
}

// The program takes the command lines of both deployments, and answers the probes.
func TestProgramTakesWhatIsWritten(t *testing.T) {
	binary := build(t)
	replica, router := decode(t).workloads(t)
	project := compose(t)
	lines := [][]string{replica.pod.Spec.Containers[0].Args, router.pod.Spec.Containers[0].Args}
	for _, s := range project.Services {
		lines = append(lines, s.Command)
	}
	for _, args := range lines {
		if out, err := exec.Command(binary, append(args, "--help")...).CombinedOutput(); err != nil {
			t.Errorf("tailor %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}

	replicaURL := start(t, binary, replaced(t, replica.pod.Spec.Containers[0].Args, map[string]string{
		"listen": "--listen=127.0.0.1:0", "id": "--id=tailor-replica-0",
	})...)
	routerURL := start(t, binary, replaced(t, router.pod.Spec.Containers[0].Args, map[string]string{
		"listen": "--listen=127.0.0.1:0", "replicas-dns": "--replica=" + replicaURL,
	})...)
	for url, c := range map[string]corev1.Container{replicaURL: replica.pod.Spec.Containers[0], routerURL: router.pod.Spec.Containers[0]} {
		for name, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
			if probe == nil {
				continue
			}
			status := 0
			for deadline := time.Now().Add(20 * time.Second); status != 200 && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
				if resp, err := http.Get(url + probe.HTTPGet.Path); err == nil {
					status = resp.StatusCode
					resp.Body.Close()
				}
			}
			if status != 200 {
				t.Errorf("%s: the %s probe %s gets %d", c.Name, name, probe.HTTPGet.Path, status)
			}
		}
	}
}
