package main

import (
	"runtime"
	"testing"
)

func TestMakeRoom(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Setenv("GOMAXPROCS", "")
	restore := makeRoom(3)
	if got := runtime.GOMAXPROCS(0); got != before+3 {
		t.Errorf("%d processors beside 3 engines, want %d", got, before+3)
	}
	if restore(); runtime.GOMAXPROCS(0) != before {
		t.Errorf("%d processors after it, want %d", runtime.GOMAXPROCS(0), before)
	}
	t.Setenv("GOMAXPROCS", "7")
	if makeRoom(3)(); runtime.GOMAXPROCS(0) != before {
		t.Errorf("changed what the user set to %d", runtime.GOMAXPROCS(0))
	}
}
