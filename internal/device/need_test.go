package device

import "testing"

func TestRoom(t *testing.T) {
	for _, c := range []struct {
		name         string
		m            Memory
		n            Need
		margin, pool uint64
	}{
		{"empty", Memory{Total: 1000, Free: 1000}, Need{Utilization: .9, Weights: 300, Activations: 50}, 100, 550},
		{"shared", Memory{Total: 1000, Used: 200, Free: 800}, Need{Utilization: .9, Weights: 300, Activations: 50}, 100, 350},
		{"all of it", Memory{Total: 1000, Free: 1000}, Need{Utilization: 1}, 0, 1000},
		{"exactly nothing", Memory{Total: 1000, Free: 500}, Need{Utilization: .9, Weights: 400}, 100, 0},
		{"too little", Memory{Total: 1000, Free: 90}, Need{Utilization: .9}, 100, 0},
		{"weights too large", Memory{Total: 1000, Free: 1000}, Need{Utilization: .9, Weights: 1 << 40}, 100, 0},
	} {
		want := Room{Free: c.m.Free, Margin: c.margin, Weights: c.n.Weights, Activations: c.n.Activations, Pool: c.pool}
		if got := c.m.Room(c.n); got != want {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
	}
}
