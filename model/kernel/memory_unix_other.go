//go:build unix && !linux

package kernel

func adviseHuge([]byte) {}
