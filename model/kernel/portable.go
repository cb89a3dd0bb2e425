//go:build (!amd64 && !arm64) || purego

package kernel

import "runtime"

// relax gives way for a moment inside a spin.
func relax() { runtime.Gosched() }

// best is the only set there is without assembly.
func best() *ops { return portable() }

func available() []*ops { return []*ops{portable()} }
