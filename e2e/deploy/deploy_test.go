// Package deploy holds the checks of what lies in deploy/: that it means to Kubernetes and to
// Compose what it says, and that it fits the program.
package deploy

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// manifests are the objects of deploy/kubernetes.
type manifests struct {
	services     map[string]*corev1.Service
	statefulSets map[string]*appsv1.StatefulSet
	deployments  map[string]*appsv1.Deployment
	budgets      map[string]*policyv1.PodDisruptionBudget
}

// decode reads all manifests. A field that Kubernetes does not know is an error.
func decode(t *testing.T) *manifests {
	t.Helper()
	m := &manifests{
		map[string]*corev1.Service{}, map[string]*appsv1.StatefulSet{},
		map[string]*appsv1.Deployment{}, map[string]*policyv1.PodDisruptionBudget{},
	}
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, doc := range bytes.Split(data, []byte("\n---\n")) {
			var kind struct{ APIVersion, Kind string }
			if err := yaml.Unmarshal(doc, &kind); err != nil {
				t.Fatalf("%s, object %d: %v", file, i, err)
			}
			strict := func(into any) {
				if err := yaml.UnmarshalStrict(doc, into); err != nil {
					t.Fatalf("%s, object %d: %v", file, i, err)
				}
			}
			switch kind.APIVersion + " " + kind.Kind {
			case "v1 Service":
				o := new(corev1.Service)
				strict(o)
				m.services[o.Name] = o
			case "apps/v1 StatefulSet":
				o := new(appsv1.StatefulSet)
				strict(o)
				m.statefulSets[o.Name] = o
			case "apps/v1 Deployment":
				o := new(appsv1.Deployment)
				strict(o)
				m.deployments[o.Name] = o
			case "policy/v1 PodDisruptionBudget":
				o := new(policyv1.PodDisruptionBudget)
				strict(o)
				m.budgets[o.Name] = o
			default:
				t.Fatalf("%s, object %d: %s %s is not expected here", file, i, kind.APIVersion, kind.Kind)
			}
		}
	}
	return m
}

func subset(part, whole map[string]string) bool {
	for k, v := range part {
		if whole[k] != v {
			return false
		}
	}
	return len(part) > 0
}

// workload is what StatefulSet and Deployment have in common.
type workload struct {
	name     string
	selector map[string]string
	pod      corev1.PodTemplateSpec
	service  string
}

func (m *manifests) workloads(t *testing.T) (replica, router workload) {
	t.Helper()
	s, d := m.statefulSets["tailor-replica"], m.deployments["tailor-router"]
	if s == nil || d == nil || len(m.statefulSets)+len(m.deployments) != 2 {
		t.Fatal("want one StatefulSet of replicas and one Deployment of routers")
	}
	if *d.Spec.Replicas < 2 {
		t.Errorf("%d routers: one alone is a single point of failure", *d.Spec.Replicas)
	}
	return workload{s.Name, s.Spec.Selector.MatchLabels, s.Spec.Template, "tailor-replicas"},
		workload{d.Name, d.Spec.Selector.MatchLabels, d.Spec.Template, "tailor"}
}

// flag is a flag's value in a command line, as --name=value or --name value.
func flag(args []string, name string) string {
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return v
		}
		if a == "--"+name && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

func TestManifestsAgree(t *testing.T) {
	m := decode(t)
	replica, router := m.workloads(t)
	for _, w := range []workload{replica, router} {
		if !subset(w.selector, w.pod.Labels) {
			t.Errorf("%s: selects %v, its pods have %v", w.name, w.selector, w.pod.Labels)
		}
		budget := m.budgets[w.name]
		if budget == nil || !subset(budget.Spec.Selector.MatchLabels, w.pod.Labels) {
			t.Errorf("%s: no disruption budget covers it", w.name)
		}
		service := m.services[w.service]
		if service == nil || !subset(service.Spec.Selector, w.pod.Labels) {
			t.Fatalf("%s: service %q does not select it", w.name, w.service)
		}
		if len(w.pod.Spec.Containers) != 1 {
			t.Fatalf("%s: %d containers", w.name, len(w.pod.Spec.Containers))
		}
		c := w.pod.Spec.Containers[0]
		if len(c.Ports) != 1 || c.Ports[0].Name != "http" {
			t.Fatalf("%s: ports %+v", w.name, c.Ports)
		}
		if got, want := flag(c.Args, "listen"), fmt.Sprintf("0.0.0.0:%d", c.Ports[0].ContainerPort); got != want {
			t.Errorf("%s: listens on %s, the container's port is %s", w.name, got, want)
		}
		for _, p := range service.Spec.Ports {
			if p.TargetPort.String() != c.Ports[0].Name {
				t.Errorf("%s: service port %s goes to %s", w.name, p.Name, p.TargetPort.String())
			}
		}
		for name, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
			if probe != nil && (probe.HTTPGet == nil || probe.HTTPGet.Port.String() != c.Ports[0].Name) {
				t.Errorf("%s: the %s probe does not ask port %s", w.name, name, c.Ports[0].Name)
			}
		}
		// Answers under way have 30 seconds from SIGTERM on, which comes after preStop.
		if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Sleep == nil {
			t.Errorf("%s: no preStop sleep; there is no shell in the image for anything else", w.name)
		} else if grace := *w.pod.Spec.TerminationGracePeriodSeconds; grace < c.Lifecycle.PreStop.Sleep.Seconds+30 {
			t.Errorf("%s: %d s of grace cut the drain short", w.name, grace)
		}
		for _, a := range []string{"prometheus.io/port"} {
			if got, want := w.pod.Annotations[a], fmt.Sprint(c.Ports[0].ContainerPort); got != want {
				t.Errorf("%s: %s is %s, the port %s", w.name, a, got, want)
			}
		}
	}

	headless := m.services["tailor-replicas"]
	if headless.Spec.ClusterIP != corev1.ClusterIPNone || m.statefulSets[replica.name].Spec.ServiceName != headless.Name {
		t.Error("the replicas have no names of their own: the service must be headless and theirs")
	}
	if m.services["tailor"].Spec.ClusterIP == corev1.ClusterIPNone {
		t.Error("the routers' service is headless")
	}
	port := headless.Spec.Ports[0]
	want := fmt.Sprintf("_%s._%s.%s", port.Name, strings.ToLower(string(port.Protocol)), headless.Name)
	args, replicaArgs := router.pod.Spec.Containers[0].Args, replica.pod.Spec.Containers[0].Args
	if got := flag(args, "replicas-dns"); got != want {
		t.Errorf("the routers look for %s, the service is %s", got, want)
	}
	for _, name := range []string{"block-size", "kv-blocks"} {
		if a, b := flag(args, name), flag(replicaArgs, name); a != b || a == "" {
			t.Errorf("--%s: routers think %q, replicas have %q", name, a, b)
		}
	}
	env := replica.pod.Spec.Containers[0].Env
	if !slices.ContainsFunc(env, func(e corev1.EnvVar) bool { return "$("+e.Name+")" == flag(replicaArgs, "id") }) {
		t.Errorf("--id %s is not in the environment", flag(replicaArgs, "id"))
	}
}

func compose(t *testing.T) *types.Project {
	t.Helper()
	file, err := filepath.Abs("../../deploy/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  filepath.Dir(file),
		ConfigFiles: []types.ConfigFile{{Filename: file}},
		Environment: types.Mapping{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return project
}

func TestComposeAgrees(t *testing.T) {
	p := compose(t)
	replica, err := p.GetService("replica")
	if err != nil {
		t.Fatal(err)
	}
	router, err := p.GetService("router")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(replica.Build.Context, replica.Build.Dockerfile)); err != nil {
		t.Error(err)
	}
	if replica.Image != router.Image {
		t.Errorf("images %q and %q", replica.Image, router.Image)
	}
	_, port, _ := strings.Cut(flag(replica.Command, "listen"), ":")
	if got, want := flag(router.Command, "replicas-dns"), replica.Name+":"+port; got != want {
		t.Errorf("the router looks for %s, the replicas are %s", got, want)
	}
	if !slices.Contains(replica.Expose, port) {
		t.Errorf("the replicas listen on %s and expose %v", port, replica.Expose)
	}
	_, port, _ = strings.Cut(flag(router.Command, "listen"), ":")
	if len(router.Ports) != 1 || fmt.Sprint(router.Ports[0].Target) != port || router.Ports[0].HostIP != "127.0.0.1" {
		t.Errorf("the router listens on %s and publishes %+v", port, router.Ports)
	}
	if a, b := flag(router.Command, "kv-blocks"), flag(replica.Command, "kv-blocks"); a != b {
		t.Errorf("--kv-blocks: the router thinks %s, the replicas have %s", a, b)
	}
	if *replica.Deploy.Replicas < 2 {
		t.Errorf("%d replicas", *replica.Deploy.Replicas)
	}
}

func TestDockerfile(t *testing.T) {
	data, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, want := range []string{"CGO_ENABLED=0", "FROM scratch", "USER 65532:65532", `ENTRYPOINT ["/tailor"]`, "./cmd/tailor"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in it", want)
		}
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := ""
	for line := range strings.Lines(string(mod)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "go "); ok {
			version = v
		}
	}
	if !strings.Contains(text, "FROM golang:"+strings.Join(strings.Split(version, ".")[:2], ".")) {
		t.Errorf("builds with another Go than %s", version)
	}
}
