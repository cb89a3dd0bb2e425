//go:build !linux || !cgo

package device

import (
	"runtime"
	"strings"
	"testing"
)

func TestStubSaysWhy(t *testing.T) {
	want := "without cgo"
	if runtime.GOOS != "linux" {
		want = runtime.GOOS
	}
	r := NewProber(Options{}).Probe()
	checkWhole(t, r)
	if r.State != NotBuilt || !strings.Contains(r.Reason, want) {
		t.Errorf("got %+v, want state %q and a reason with %q", r, NotBuilt, want)
	}
}
