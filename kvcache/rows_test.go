package kvcache

import (
	"fmt"
	"hash/fnv"
	"math"
)

// pathHash is what the "model" of these tests computes for a position: it depends on all
// tokens up to it, under one salt.
func pathHash(salt string, path []int32) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q", salt)
	sum := h.Sum64()
	for _, token := range path {
		sum = (sum + uint64(token) + 1) * 0x9E3779B97F4A7C15
		sum ^= sum >> 29
	}
	return sum
}

// eachNumber calls f with the address of every number of one token row, and the number
// that belongs there. It depends on the path and on the place in the storage: a block of
// another path, a stale row or a row in the wrong place holds a wrong number.
func eachNumber(s *Sequence, at int, f func(p *float32, want float32)) {
	cfg := s.m.cfg
	block, r := at/cfg.BlockSize, at%cfg.BlockSize
	sum := pathHash(s.salt, s.tokens[:min(at+1, len(s.tokens))])
	for layer := range cfg.Layers {
		keys, values := s.Keys(layer, block), s.Values(layer, block)
		for head := range cfg.Heads {
			for dim := range cfg.HeadDim {
				sum = sum*0xD1342543DE82EF95 + 1
				f(&keys[(head*cfg.HeadDim+dim)*cfg.BlockSize+r], float32(sum>>40)) // 24 bits: exact in a float32
				sum = sum*0xD1342543DE82EF95 + 1
				f(&values[(head*cfg.BlockSize+r)*cfg.HeadDim+dim], float32(sum>>40))
			}
		}
	}
}

// compute writes rows [from, to) as Forward would.
func compute(s *Sequence, from, to int) {
	for at := from; at < to; at++ {
		eachNumber(s, at, func(p *float32, want float32) { *p = want })
	}
}

// poison makes every row that is not computed a NaN: rows that must not be read.
func poison(s *Sequence) {
	for at := s.computed; at < s.Blocks()*s.BlockSize(); at++ {
		eachNumber(s, at, func(p *float32, _ float32) { *p = float32(math.NaN()) })
	}
}

// verify reads all computed rows.
func verify(s *Sequence) error {
	for at := range s.computed {
		wrong := 0
		eachNumber(s, at, func(p *float32, want float32) {
			if *p != want {
				wrong++
			}
		})
		if wrong > 0 {
			return fmt.Errorf("row %d of %q %v, in block %d: %d numbers are wrong", at, s.salt, s.tokens, s.table.At(at/s.BlockSize()), wrong)
		}
	}
	return nil
}
