package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// fleet builds n ready and idle replicas with IDs in ascending order.
func fleet(n int) []Replica {
	replicas := make([]Replica, n)
	for i := range replicas {
		replicas[i] = Replica{ID: fmt.Sprintf("r%02d", i), Ready: true}
	}
	return replicas
}

// prompt is a request whose first prefixTokens tokens depend on prefix alone and whose
// others depend on suffix too.
func prompt(prefix, prefixTokens, suffix, suffixTokens int) Request {
	rng := rand.New(rand.NewPCG(uint64(prefix), 1))
	var tokens []int32
	for range prefixTokens {
		tokens = append(tokens, rng.Int32N(4096))
	}
	rng = rand.New(rand.NewPCG(uint64(prefix), uint64(suffix)+2))
	for range suffixTokens {
		tokens = append(tokens, rng.Int32N(4096))
	}
	return Request{
		Blocks:      ChainTokens(Root(UnitTokens, "m"), tokens, 16, 1<<20),
		BlockTokens: 16,
		Tokens:      len(tokens),
		Seq:         uint64(suffix),
	}
}

// cacheModel says which blocks each replica has been sent, as a plain set: the naive twin
// of an index that never forgets.
type cacheModel map[string]map[Hash]bool

func (m cacheModel) cached(id string, r Request) int {
	n := 0
	for n < len(r.Blocks) && m[id][r.Blocks[n]] {
		n++
	}
	return min(n*r.BlockTokens, r.Tokens-1)
}

func (m cacheModel) add(id string, r Request) {
	if m[id] == nil {
		m[id] = map[Hash]bool{}
	}
	for _, b := range r.Blocks {
		m[id][b] = true
	}
}

// rounds is the number of rounds of a random test: a sixth under -short.
func rounds(n int) int {
	if testing.Short() {
		return n / 6
	}
	return n
}

func all(t testing.TB, o Options) []Policy {
	t.Helper()
	var policies []Policy
	for _, name := range Names() {
		p, err := New(name, o)
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, p)
	}
	return policies
}

func choose(t testing.TB, p Policy, r Request, replicas []Replica) Decision {
	t.Helper()
	d, err := p.Choose(r, replicas)
	if err != nil {
		t.Fatalf("%s: %v", p.Name(), err)
	}
	return d
}

// lessonRow is a request of the lesson's recorded workload.
type lessonRow struct {
	Prefix       int `json:"prefix_id"`
	PrefixTokens int `json:"prefix_tokens"`
	SuffixTokens int `json:"suffix_tokens"`
	RandomServer int `json:"random_server"`
}

// sharedFile reads a file of the data folder that lies beside the checkout.
func sharedFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("../../../shared/data/" + name)
	if err != nil {
		t.Skipf("no shared data beside the checkout: %v", err)
	}
	return data
}

func jsonLines[T any](t testing.TB, data []byte) []T {
	t.Helper()
	var rows []T
	for line := range strings.Lines(string(data)) {
		var row T
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("line %d: %v", len(rows)+1, err)
		}
		rows = append(rows, row)
	}
	return rows
}
