package e2e

import (
	"os"
	"os/exec"
	"testing"
)

// The Node client comes by npm; `make e2e` fetches it.
func TestNodeClient(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	if _, err := os.Stat("node/node_modules/openai"); err != nil {
		t.Skip("the Node client is not here: make e2e fetches it")
	}
	for name, base := range targets(t) {
		t.Run(name, func(t *testing.T) {
			check := exec.CommandContext(t.Context(), node, "checklist.mjs")
			check.Dir = "node"
			check.Env = append(os.Environ(), "TAILOR_URL="+base, "TAILOR_KEY="+apiKey)
			out, err := check.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}
