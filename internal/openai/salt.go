package openai

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// SaltOfKey is the salt of a request where each API key has its prefixes for itself: it is
// derived from the key and the salt that the client chose, so that who does not have the
// key can neither guess nor make it. Router and replica must agree on it. It is
// HMAC-SHA256 under the key, of two parts that are each preceded by their length, so that
// nothing runs together with what another may choose.
//
// Different keys of printable characters have different salts. (HMAC fills keys up with
// zero bytes, and takes the SHA-256 of those longer than 64.)
func SaltOfKey(key, chosen string) string {
	mac := hmac.New(sha256.New, []byte(key))
	for _, part := range []string{"tailor: salt", chosen} {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		mac.Write([]byte(part))
	}
	return hex.EncodeToString(mac.Sum(nil))
}
