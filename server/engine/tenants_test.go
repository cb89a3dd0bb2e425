package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"tailor/model"
)

// echoShape has tokens enough for one that is each tenant's own.
var echoShape = model.Config{Layers: 1, Heads: 1, Width: 1, Context: 128, Vocab: 512, EOS: -1}

// echoModel can only say what it finds in the KV storage: the logit of a token is how often
// it stands in the rows up to the position, and -Inf where it does not. Whatever leaks from
// one sequence to another can be seen in the logits, and is said before long.
type echoModel struct{ shape model.Config }

var echo = subject{shape: echoShape, open: func(Config) forwarder { return echoModel{echoShape} }}

func (echoModel) Close() {}

func (m echoModel) Forward(chunks []model.Chunk) []float32 {
	var logits []float32
	for _, c := range chunks {
		size := c.KV.BlockSize()
		for i, token := range c.Tokens {
			pos := c.Start + i
			c.KV.Keys(0, pos/size)[pos%size] = float32(token)
			c.KV.Values(0, pos/size)[pos%size] = float32(token)
		}
	}
	for _, c := range chunks {
		size := c.KV.BlockSize()
		for rows := c.Start + len(c.Tokens) - c.Logits; rows < c.Start+len(c.Tokens); rows++ {
			row := slices.Repeat([]float32{negInf}, m.shape.Vocab)
			for pos := range rows + 1 {
				for _, said := range []float32{c.KV.Keys(0, pos/size)[pos%size], c.KV.Values(0, pos/size)[pos%size]} {
					row[int(said)] = max(row[int(said)], 0) + 0.5
				}
			}
			logits = append(logits, row...)
		}
	}
	return logits
}

// tenant is one of many who all begin with the same words, and then say a word that
// nobody else has.
type tenant struct {
	word    int32
	salt    string
	history []int32
	turns   int // taken
}

func (m echoModel) isWord(id int) bool { return id >= 100 }

// 13: text of one conversation turned up in another. 14: and one tenant could tell from
// the hits what another had asked.
func TestFault13TenantsNeverSeeEachOthersWords(t *testing.T) {
	for _, schedule := range []Schedule{FCFS, LongestPrefix} {
		for _, salted := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, salted %v", schedule, salted), func(t *testing.T) {
				tenantsTalk(t, Config{MaxSequences: 16, MaxBatchedTokens: 40, Schedule: schedule}, salted)
			})
		}
	}
}

// tenantsTalk has 200 tenants take some turns each, 12 at a time in a pool that holds
// about 4, so that blocks go from one to the next all the time.
func tenantsTalk(t *testing.T, cfg Config, salted bool) {
	const turns, atOnce, common = 4, 10, 24
	tenants := 200
	if testing.Short() {
		tenants = 50
	}
	rnd := rand.New(rand.NewPCG(13, 14))
	r := newRig(t, echo, 116, 4, cfg)
	var words []int32
	for i := range common {
		words = append(words, int32(i%10))
	}
	foreign, silent := 0, 0
	talk := func(who *tenant) *call {
		req := ask(who.history, 8)
		req.Salt = who.salt
		req.N = 1 + rnd.IntN(3)
		req.observe = func(_, _ int, logits []float32) {
			for id, l := range logits {
				if possible := l > negInf; (echoModel{}).isWord(id) && possible != (id == int(who.word)) {
					if possible {
						foreign++
					} else {
						silent++
					}
				}
			}
		}
		return r.submit(req)
	}

	order := rnd.Perm(tenants)
	talking := map[*call]*tenant{}
	var first, later, firstHits, laterHits int
	for len(order)+len(talking) > 0 {
		for len(order) > 0 && len(talking) < atOnce {
			who := &tenant{word: int32(100 + order[0])}
			if salted {
				who.salt = fmt.Sprintf("tenant %d", order[0])
			}
			who.history = join(words, []int32{who.word, 10})
			order = order[1:]
			talking[talk(who)] = who
		}
		r.turn()
		for _, c := range r.calls {
			who := talking[c]
			if who == nil || !c.closed {
				continue
			}
			delete(talking, c)
			hits, n := &laterHits, &later
			if who.turns == 0 {
				hits, n = &firstHits, &first
			}
			*n++
			if c.last.Cached > 0 {
				*hits++
			}
			if who.turns++; who.turns < turns {
				who.history = join(who.history, c.tokens, []int32{who.word, 11})
				talking[talk(who)] = who
			}
		}
	}
	if foreign > 0 || silent > 0 {
		t.Errorf("%d logits of words that only another tenant knows; %d of the own one are missing", foreign, silent)
	}
	if first != tenants || later != tenants*(turns-1) {
		t.Fatalf("%d first turns, %d later ones", first, later)
	}
	// The same salt hits, also here; another salt never does, though the words are there.
	if laterHits < later/2 {
		t.Errorf("%d of %d later turns hit", laterHits, later)
	}
	if salted && firstHits > 0 || !salted && firstHits < first/2 {
		t.Errorf("%d of %d first turns hit", firstHits, first)
	}
	stats := r.e.Stats()
	if stats.KV.Evicted < 2*116 || salted && tenants == 200 && stats.Preemptions == 0 || stats.Forks == 0 {
		t.Errorf("no pressure: %d blocks evicted, %d preemptions, %d forks", stats.KV.Evicted, stats.Preemptions, stats.Forks)
	}
	t.Logf("hits: %d of %d first turns, %d of %d later ones; %d blocks evicted, %d preemptions",
		firstHits, first, laterHits, later, stats.KV.Evicted, stats.Preemptions)
}
