package policy

import (
	"slices"
	"testing"
)

func TestChainTokens(t *testing.T) {
	root := Root(UnitTokens, "m")
	tokens := make([]int32, 100)
	for i := range tokens {
		tokens[i] = int32(i * i)
	}
	whole := ChainTokens(root, tokens, 16, 1000)
	if len(whole) != 6 {
		t.Fatalf("100 tokens fill %d blocks of 16", len(whole))
	}
	for n := range len(tokens) + 1 {
		if got := ChainTokens(root, tokens[:n], 16, 1000); !slices.Equal(got, whole[:n/16]) {
			t.Fatalf("the chain of %d tokens is not the beginning of the whole one", n)
		}
	}
	if got := ChainTokens(root, tokens, 16, 2); !slices.Equal(got, whole[:2]) {
		t.Error("the limit changes the chain")
	}
	// A changed token changes its block and all after it, none before.
	for _, at := range []int{0, 15, 16, 50, 95} {
		changed := slices.Clone(tokens)
		changed[at]++
		got := ChainTokens(root, changed, 16, 1000)
		for i := range whole {
			if same := got[i] == whole[i]; same != (i < at/16) {
				t.Errorf("token %d changed: block %d the same: %v", at, i, same)
			}
		}
	}
	// Equal blocks at different places are different prefixes.
	repeated := ChainTokens(root, make([]int32, 64), 16, 1000)
	if slices.Sort(repeated); len(slices.Compact(repeated)) != 4 {
		t.Error("repeated blocks have equal hashes")
	}
}

func TestChainBytes(t *testing.T) {
	root := Root(UnitBytes, "m")
	text := "The quick brown fox jumps over the lazy dog, and then sleeps in the sun."
	whole := ChainBytes(root, text, 8, 1000)
	if len(whole) != len(text)/8 {
		t.Fatalf("%d chunks", len(whole))
	}
	for n := range len(text) + 1 {
		if got := ChainBytes(root, text[:n], 8, 1000); !slices.Equal(got, whole[:n/8]) {
			t.Fatalf("the chain of %d bytes is not the beginning of the whole one", n)
		}
	}
}

// What separates two scopes: unit, model and salt.
func TestScopesShareNothing(t *testing.T) {
	tokens := make([]int32, 64)
	type scope struct{ unit, model, salt string }
	seen := map[Hash]scope{}
	for _, s := range []scope{
		{"t", "m", ""}, {"b", "m", ""}, {"t", "", "m"}, {"t", "", ""}, {"t", "bm", ""}, {"b", "", "m"},
		{"t", "org_1", "2345"}, {"t", "org_12345", ""}, {"t", "org_", "12345"}, {"t", "m", "n"}, {"t", "n", "m"},
	} {
		chain := ChainTokens(Root(Unit(s.unit[0]), s.model), tokens, 16, 100)
		open := slices.Clone(chain)
		salted := Salted(chain, s.salt)
		if !slices.Equal(chain, open) {
			t.Fatal("salting changed the chain itself")
		}
		for i, h := range salted {
			if other, ok := seen[h]; ok {
				t.Errorf("%q and %q share a block", other, s)
			}
			seen[h] = s
			if s.salt != "" && h != SaltedHash(chain[i], SaltHash(s.salt)) {
				t.Errorf("%q: block %d differs from its own salted hash", s, i)
			}
		}
	}
}

// The key must not depend on anything past its depth, and never on the whole prompt.
func TestKeyNeverCoversTheWholePrompt(t *testing.T) {
	for tokens := 1; tokens < 200; tokens++ {
		r := prompt(1, tokens, 0, 0)
		for _, depth := range []int{1, 4, 1000} {
			key, ok := r.key(depth)
			blocks := min(depth, (tokens-1)/16) // at least one token stays outside
			if ok != (blocks > 0) {
				t.Fatalf("%d tokens, depth %d: key %v", tokens, depth, ok)
			}
			if ok && key != r.Blocks[blocks-1] {
				t.Fatalf("%d tokens, depth %d: not the hash of %d blocks", tokens, depth, blocks)
			}
		}
	}
	a, _ := prompt(7, 64, 1, 100).key(4)
	b, _ := prompt(7, 64, 2, 300).key(4)
	if a != b {
		t.Error("two prompts with the same 4 blocks have different keys")
	}
}

// Recorded values: the hashes are shared between routers, so they must not change unseen
// between builds or machines.
func TestHashesAreStable(t *testing.T) {
	root := Root(UnitTokens, "tailor-4m")
	chain := Salted(ChainTokens(root, []int32{1, 2, 3, 4}, 2, 10), "salt")
	text := ChainBytes(Root(UnitBytes, "tailor-4m"), "abcdef", 3, 10)
	got := []Hash{root, chain[0], chain[1], text[0], text[1]}
	want := []Hash{0x3b695045cb6d4d5a, 0x787d44414318ef0e, 0xff5f15f495db7df9, 0xc3e2ecfc245fd333, 0xa71f33cd3173518a}
	if !slices.Equal(got, want) {
		t.Errorf("hashes %#x, want %#x", got, want)
	}
}

func FuzzChain(f *testing.F) {
	f.Add([]byte("hello, world"), byte(3), byte(4))
	f.Fuzz(func(t *testing.T, data []byte, block, cut byte) {
		size := int(block)%32 + 1
		n := min(int(cut), len(data))
		root := Root(UnitBytes, "m")
		whole, part := ChainBytes(root, string(data), size, 100), ChainBytes(root, string(data[:n]), size, 100)
		if !slices.Equal(part, whole[:len(part)]) {
			t.Fatalf("chain of %d bytes is not the beginning of that of %d", n, len(data))
		}
	})
}
