package kernel

import (
	"runtime"
	"unsafe"
)

// Memory is where packed weights live: outside the Go heap, so that the collector does
// not pace itself by them, and in huge pages where the system has them, which streams
// them 15 to 30 % faster. It belongs to the matrices taken from it and is unmapped when
// the collector finds it unreachable; a caller that holds bare slices of it keeps it
// alive with runtime.KeepAlive.
type Memory struct {
	all  []byte
	free []float32
}

// NewMemory maps room for n floats, all zero. Take panics when the room is spent.
func NewMemory(n int) (*Memory, error) {
	all, err := mapBytes(4 * n)
	if err != nil {
		return nil, err
	}
	m := &Memory{all: all, free: unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(all))), len(all)/4)}
	runtime.AddCleanup(m, unmapBytes, all)
	return m, nil
}

// Reset makes the whole room free again, and zero. Nothing taken before may be used after.
func (m *Memory) Reset() {
	all := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(m.all))), len(m.all)/4)
	clear(all[:len(all)-len(m.free)])
	m.free = all
}

// Take returns the next n floats, aligned to 64 bytes.
func (m *Memory) Take(n int) []float32 {
	size := RoundTake(n)
	s := m.free[:n:size]
	m.free = m.free[size:]
	return s
}

// take16 returns the next n words of 16 bits, aligned to 64 bytes. They take up the room
// of n/2 floats.
func (m *Memory) take16(n int) []uint16 {
	s := m.Take((n + 1) / 2)
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(s))), n)
}

// RoundTake is the room that Take(n) uses up, in floats.
func RoundTake(n int) int { return (n + lanes - 1) / lanes * lanes }
