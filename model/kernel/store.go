package kernel

// store is one layer's new keys and values on their way into their blocks; a unit is
// one head of one span.
type store struct {
	team  *Team
	qkv   []float32
	heads Heads
	spans []Span
}

// Store writes the keys and values of every row of every span, qkv[Source+i] from
// heads*dim on, to their blocks at positions Start+i. Where a block is of bfloat16 it rounds
// them, to nearest, ties to even; Attend reads them from there, whether they are new or old.
func (t *Team) Store(qkv []float32, spans []Span, h Heads) {
	t.store = store{team: t, qkv: qkv, heads: h, spans: spans}
	rows := 0
	for i := range spans {
		rows += spans[i].Rows
	}
	// A float of a key goes to a cache line of its own, so it counts several times.
	if units := len(spans) * h.Heads; 4*rows*h.width() < inlineWork {
		for u := range units {
			t.store.Unit(0, u)
		}
	} else {
		t.Run(units, &t.store)
	}
	t.store = store{}
}

// Unit stores one head of one span.
func (j *store) Unit(_, unit int) {
	s, head := &j.spans[unit/j.heads.Heads], unit%j.heads.Heads
	size, width, n := s.KV.BlockSize(), j.heads.width(), 0
	for r := 0; r < s.Rows; r += n {
		b, t := (s.Start+r)/size, (s.Start+r)%size
		n = min(size-t, s.Rows-r)
		rows := j.qkv[(s.Source+r)*3*width+head*j.heads.Dim:]
		if s.KV.BFloat16() {
			j.rows16(s.KV, b, head, t, n, rows)
		} else {
			j.rows(s.KV, b, head, t, n, rows)
		}
	}
}

// rows stores n rows of one head from row t of a block on.
func (j *store) rows(kv KV, block, head, t, n int, rows []float32) {
	dim, width, size := j.heads.Dim, j.heads.width(), kv.BlockSize()
	keys := kv.Keys(j.heads.Layer, block)[head*dim*size:][:dim*size]
	values := kv.Values(j.heads.Layer, block)[head*dim*size:][:dim*size]
	for i := range n {
		row := rows[i*3*width:]
		for d, k := range row[width:][:dim] {
			keys[d*size+t+i] = k
		}
		copy(values[(t+i)*dim:][:dim], row[2*width:])
	}
}

// rows16 stores n rows of one head from row t of a block of bfloat16 on.
func (j *store) rows16(kv KV, block, head, t, n int, rows []float32) {
	dim, width, size := j.heads.Dim, j.heads.width(), kv.BlockSize()
	keys := kv.Keys16(j.heads.Layer, block)[head*dim*size:][:dim*size]
	values := kv.Values16(j.heads.Layer, block)[head*dim*size:][:dim*size]
	for i := range n {
		row := rows[i*3*width:]
		for d, k := range row[width:][:dim] {
			keys[d*size+t+i] = roundUpper(k)
		}
		j.team.ops.round(values[(t+i)*dim:][:dim], row[2*width:][:dim])
	}
}
