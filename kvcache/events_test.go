package kvcache

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// mirror knows of the cache only what a Sink is told.
type mirror struct {
	size   int
	blocks map[BlockID]mirrored
	wrong  error // the first event that made no sense
	*told
}

// told counts what a mirror was told.
type told struct {
	stored, removed, cleared int // blocks, blocks, times
	runs                     int // of several blocks, stored at once
}

type mirrored struct {
	salt   string
	parent BlockID
	path   []int32
}

func newMirror(size int) *mirror {
	return &mirror{size: size, blocks: map[BlockID]mirrored{}, told: &told{}}
}

func (m *mirror) fail(format string, args ...any) {
	if m.wrong == nil {
		m.wrong = fmt.Errorf(format, args...)
	}
}

func (m *mirror) Stored(salt string, parent BlockID, path []int32, blocks []BlockID) {
	start := len(path) - len(blocks)*m.size
	above, known := m.blocks[parent]
	switch {
	case len(blocks) == 0 || start < 0 || parent == NoBlock && start != 0:
		m.fail("stored %v, %d tokens, under %d", blocks, len(path), parent)
		return
	case parent != NoBlock && (!known || above.salt != salt || !slices.Equal(above.path, path[:start])):
		m.fail("stored %q %v under %d: %+v", salt, path, parent, above)
	}
	for i, id := range blocks {
		if old, there := m.blocks[id]; there {
			m.fail("stored %d again: it is %+v", id, old)
		}
		m.blocks[id] = mirrored{salt, parent, slices.Clone(path[:start+(i+1)*m.size])}
		parent = id
	}
	m.stored += len(blocks)
	if len(blocks) > 1 {
		m.runs++
	}
}

func (m *mirror) Removed(blocks []BlockID) {
	if len(blocks) == 0 {
		m.fail("removed nothing")
	}
	for _, id := range blocks {
		if _, there := m.blocks[id]; !there {
			m.fail("removed %d, which is not there", id)
		}
		delete(m.blocks, id)
		for child, b := range m.blocks {
			if b.parent == id {
				m.fail("removed %d before its child %d", id, child)
			}
		}
	}
	m.removed += len(blocks)
}

func (m *mirror) Cleared() {
	clear(m.blocks)
	m.cleared++
}

// compare checks the mirror against a walk, and both against the twin, which knows nothing
// of events, nodes or ids.
func (m *mirror) compare(manager *Manager, twin *twin) error {
	if m.wrong != nil {
		return m.wrong
	}
	walked := map[BlockID]mirrored{}
	for b := range manager.Walk {
		walked[b.ID] = mirrored{b.Salt, b.Parent, slices.Clone(b.Path)}
	}
	same := func(a, b mirrored) bool {
		return a.salt == b.salt && a.parent == b.parent && slices.Equal(a.path, b.path)
	}
	if !maps.EqualFunc(walked, m.blocks, same) {
		return fmt.Errorf("the events add up to\n%+v, a walk finds\n%+v", m.blocks, walked)
	}
	for id, b := range walked {
		if twin.at(b.salt, b.path) == nil {
			return fmt.Errorf("a walk finds block %d, %+v; the twin has none", id, b)
		}
	}
	if len(walked) != len(twin.cached) {
		return fmt.Errorf("a walk finds %d blocks of %d", len(walked), len(twin.cached))
	}
	return nil
}

// Who is told starts from a walk and stops when another one is told.
func TestWatchBeginsAtAnyTime(t *testing.T) {
	m, err := New(Config{Blocks: 8, BlockSize: 2, Layers: 1, Heads: 1, HeadDim: 1})
	if err != nil {
		t.Fatal(err)
	}
	run := func(salt string, tokens ...int32) {
		t.Helper()
		s, err := m.Allocate(salt, tokens)
		if err != nil {
			t.Fatal(err)
		}
		m.Commit(s, s.Len()-s.Computed())
		m.Free(s)
	}
	run("", 1, 2, 3, 4) // nobody is told
	early, late := newMirror(2), newMirror(2)
	m.Watch(early)
	run("a", 1, 2, 3, 4, 5)
	for b := range m.Walk {
		late.blocks[b.ID] = mirrored{b.Salt, b.Parent, slices.Clone(b.Path)}
	}
	m.Watch(late)
	run("", 1, 2, 3, 4, 9, 9)
	run("b", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
	if early.stored != 2 || early.removed != 0 || early.wrong != nil {
		t.Errorf("the first was told of %d stored and %d removed, %v", early.stored, early.removed, early.wrong)
	}
	if late.stored != 1+5 || late.removed == 0 {
		t.Errorf("the second was told of %d stored and %d removed", late.stored, late.removed)
	}
	twin := &twin{cfg: m.cfg}
	for _, b := range late.blocks {
		twin.cached = append(twin.cached, &cachedBlock{salt: b.salt, path: b.path})
	}
	if err := late.compare(m, twin); err != nil {
		t.Error(err)
	}
	m.Watch(nil)
	if _, err := m.Reset(); err != nil || late.cleared != 0 {
		t.Errorf("reset: %v, told %d times", err, late.cleared)
	}
}

type deafSink struct{}

func (deafSink) Stored(string, BlockID, []int32, []BlockID) {}
func (deafSink) Removed([]BlockID)                          {}
func (deafSink) Cleared()                                   {}

// Telling allocates nothing.
func TestWatchingAllocatesNothing(t *testing.T) {
	allocations := func(sink Sink) float64 {
		m, err := New(Config{Blocks: 64, BlockSize: 2, Layers: 1, Heads: 1, HeadDim: 1})
		if err != nil {
			t.Fatal(err)
		}
		m.Watch(sink)
		tokens := make([]int32, 40)
		return testing.AllocsPerRun(200, func() {
			tokens[0]++ // evicts, since nothing is found
			s, err := m.Allocate("", tokens)
			if err != nil {
				t.Fatal(err)
			}
			m.Commit(s, s.Len())
			m.Free(s)
		})
	}
	if without, with := allocations(nil), allocations(deafSink{}); with > without {
		t.Errorf("%v allocations, %v without a sink", with, without)
	}
}
