package openai

import (
	"fmt"
	"strings"
	"testing"
)

// The value is Python's: hmac.new(b"key-1", pack(">Q", 12) + b"tailor: salt" + pack(">Q", 3) + b"abc", "sha256").
func TestSaltOfKey(t *testing.T) {
	const want = "8663625c258a945e612c19c2398d72026cd12a389f8da3753cf7c24f08bbe87f"
	if got := SaltOfKey("key-1", "abc"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Fault 4. No two pairs of key and salt run together.
func TestFault04_SaltsOfKeysDoNotRunTogether(t *testing.T) {
	seen := map[string]string{}
	keys := []string{"", "a", "ab", "b", "org_1", "org_12345", "2345", "0", strings.Repeat("k", 64), strings.Repeat("k", 65)}
	for _, key := range keys {
		for _, chosen := range append(keys, "\x00", "a\x00", "tailor: salt", "10:a") {
			pair := fmt.Sprintf("%q, %q", key, chosen)
			salt := SaltOfKey(key, chosen)
			if other, twice := seen[salt]; twice {
				t.Errorf("%s and %s have one salt", pair, other)
			}
			seen[salt] = pair
		}
	}
}
