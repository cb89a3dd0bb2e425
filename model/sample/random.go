package sample

// uniform is a number in [0,1) that depends on seed and index alone. Randomness is
// counter based rather than drawn from a generator that advances: a sequence that is
// preempted and recomputed, or that shares its batch with others, finds the same number
// at the same token without any state to save.
func uniform(seed int64, index int) float64 {
	// The seed is mixed first: neighbouring seeds would otherwise give the same
	// stream shifted by a token.
	key := splitmix(uint64(seed), 0)
	return float64(splitmix(key, uint64(index))>>11) * 0x1p-53
}

// splitmix is output number i, counted from 0, of the SplitMix64 generator started at
// state (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
// Its state is a plain counter, so any output is reached in one step.
func splitmix(state, i uint64) uint64 {
	z := state + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
