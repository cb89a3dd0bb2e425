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
	if r := NewProber().Probe(); r.State != NotBuilt || !strings.Contains(r.Reason, want) {
		t.Errorf("got %+v, want state %q and a reason with %q", r, NotBuilt, want)
	}
}
