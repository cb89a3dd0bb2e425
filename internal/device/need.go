package device

// Need is what an engine takes of a GPU's memory beside its block pool.
type Need struct {
	Utilization float64 // share of the total memory that may be in use in the end, 0 to 1
	Weights     uint64  // bytes
	Activations uint64  // bytes
}

// Room is how much of a GPU's free memory is left for blocks, and what is not, in bytes:
// Pool = Free - Margin - Weights - Activations, or 0.
type Room struct {
	Free        uint64 `json:"free_bytes"`
	Margin      uint64 `json:"margin_bytes"` // what the utilization leaves alone of the total
	Weights     uint64 `json:"weight_bytes"`
	Activations uint64 `json:"activation_bytes"`
	Pool        uint64 `json:"pool_bytes"`
}

// Room says what a pool may take. The margin is kept free whatever else uses the GPU: on
// an empty one the engine gets the utilization's share of the total, on a shared one that
// much less as others have taken.
func (m Memory) Room(n Need) Room {
	usable := min(uint64(float64(m.Total)*n.Utilization), m.Total)
	r := Room{Free: m.Free, Margin: m.Total - usable, Weights: n.Weights, Activations: n.Activations}
	if taken := r.Margin + r.Weights + r.Activations; taken < r.Free {
		r.Pool = r.Free - taken
	}
	return r
}
