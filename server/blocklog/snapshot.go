package blocklog

import (
	"fmt"
	"slices"

	"tailor/kvcache"
)

// Snapshot is all that a cache holds at a position.
type Snapshot struct {
	Position
	Digest    uint64
	BlockSize int // tokens
	Salts     []Salt
}

// Salt is what is cached under one salt.
type Salt struct {
	Salt   string
	Blocks []Block // parents first
}

// Block is a block under its parent; NoBlock: it begins a path.
type Block struct {
	ID, Parent kvcache.BlockID
	Tokens     []int32
}

// Snapshot copies what kv, the cache of this log, holds now. The caller owns kv.
func (l *Log) Snapshot(kv *kvcache.Manager) Snapshot {
	l.mu.Lock()
	s := Snapshot{Position: Position{l.name, l.seq}, Digest: l.digest, BlockSize: l.blockSize}
	l.mu.Unlock()
	// Only this goroutine changes the cache: it stays what it is at that position.
	blocks := kv.Stats().Cached
	tokens := make([]int32, 0, blocks*l.blockSize)
	for b := range kv.Walk {
		if n := len(s.Salts); n == 0 || s.Salts[n-1].Salt != b.Salt {
			s.Salts = append(s.Salts, Salt{Salt: b.Salt})
		}
		from := len(tokens)
		tokens = append(tokens, b.Path[len(b.Path)-l.blockSize:]...)
		last := &s.Salts[len(s.Salts)-1].Blocks
		if *last == nil && len(s.Salts) == 1 {
			*last = make([]Block, 0, blocks) // most caches know one salt
		}
		*last = append(*last, Block{ID: b.ID, Parent: b.Parent, Tokens: slices.Clip(tokens[from:])})
	}
	return s
}

// Check proves that the digest is that of kv's blocks. The caller owns kv. It takes time
// linear in the tokens of all paths.
func (l *Log) Check(kv *kvcache.Manager) error {
	sum := uint64(0)
	for b := range kv.Walk {
		l.begin(b.Salt)
		path := l.add(b.Path)
		if l.paths[b.ID] != path {
			return fmt.Errorf("blocklog: block %d adds %016x to the digest, its path of %d tokens is %016x", b.ID, l.paths[b.ID], len(b.Path), path)
		}
		sum += path
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.digest != sum {
		return fmt.Errorf("blocklog: after event %d the digest is %016x, that of the cache %016x", l.seq, l.digest, sum)
	}
	return nil
}
