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

// place is where a number of either type is stored, as its bits.
type place struct {
	wide   *float32
	narrow *uint16
}

func (p place) set(bits uint32) {
	if p.wide != nil {
		*p.wide = math.Float32frombits(bits)
	} else {
		*p.narrow = uint16(bits)
	}
}

func (p place) bits() uint32 {
	if p.wide != nil {
		return math.Float32bits(*p.wide)
	}
	return uint32(*p.narrow)
}

// nan is no number that belongs anywhere.
func (p place) nan() uint32 {
	if p.wide != nil {
		return 0x7fc00000
	}
	return 0x7fc0
}

// eachNumber calls f with the place of every number of one token row, and the bits that
// belong there. They depend on the path and on the place in the storage: a block of
// another path, a stale row or a row in the wrong place holds wrong ones.
func eachNumber(s *Sequence, at int, f func(p place, want uint32)) {
	cfg := s.m.cfg
	block, r := at/cfg.BlockSize, at%cfg.BlockSize
	sum := pathHash(s.salt, s.tokens[:min(at+1, len(s.tokens))])
	next := func() uint32 {
		sum = sum*0xD1342543DE82EF95 + 1
		if cfg.BFloat16 {
			return uint32(sum >> 50) // 14 bits: no NaN
		}
		return math.Float32bits(float32(sum >> 40)) // 24 bits: exact in a float32
	}
	for layer := range cfg.Layers {
		for head := range cfg.Heads {
			for dim := range cfg.HeadDim {
				key, value := (head*cfg.HeadDim+dim)*cfg.BlockSize+r, (head*cfg.BlockSize+r)*cfg.HeadDim+dim
				if s.BFloat16() {
					f(place{narrow: &s.Keys16(layer, block)[key]}, next())
					f(place{narrow: &s.Values16(layer, block)[value]}, next())
				} else {
					f(place{wide: &s.Keys(layer, block)[key]}, next())
					f(place{wide: &s.Values(layer, block)[value]}, next())
				}
			}
		}
	}
}

// compute writes rows [from, to) as Forward would.
func compute(s *Sequence, from, to int) {
	for at := from; at < to; at++ {
		eachNumber(s, at, func(p place, want uint32) { p.set(want) })
	}
}

// poison makes every row that is not computed a NaN: rows that must not be read.
func poison(s *Sequence) {
	for at := s.computed; at < s.Blocks()*s.BlockSize(); at++ {
		eachNumber(s, at, func(p place, _ uint32) { p.set(p.nan()) })
	}
}

// verify reads all computed rows.
func verify(s *Sequence) error {
	for at := range s.computed {
		wrong := 0
		eachNumber(s, at, func(p place, want uint32) {
			if p.bits() != want {
				wrong++
			}
		})
		if wrong > 0 {
			return fmt.Errorf("row %d of %q %v, in block %d: %d numbers are wrong", at, s.salt, s.tokens, s.table.At(at/s.BlockSize()), wrong)
		}
	}
	return nil
}
