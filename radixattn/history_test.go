package radixattn

import (
	"bufio"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tailor/paging"
)

var rewrite = flag.Bool("rewrite", false, "write what the histories in testdata do now into them")

// TestHistories replays the histories in testdata. A history is a list of stanzas: some
// commands, a line ----, and what they answer and leave behind, up to an empty line.
// Lines that start with # are remarks. The commands, with SALT - for the empty salt:
//
//	tree B [lru|lfu]     start over, with blocks of B rows
//	match SALT TOKEN...  find a prefix; change nothing
//	lock L SALT TOKEN... find a prefix and lock its whole blocks, as L
//	share L M            lock, as M, what L covers
//	insert L TOKEN...    add tokens below L; blocks are numbered 0, 1, 2, ... as they come
//	unlock L
//	evict N
//
// The tree is drawn after the last command of a stanza; String explains how.
func TestHistories(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no histories: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(want))
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(want), "\n")
			for i := range min(len(gotLines), len(wantLines)) {
				if gotLines[i] != wantLines[i] {
					t.Fatalf("%s:%d:\ngot  %s\nwant %s", path, i+1, gotLines[i], wantLines[i])
				}
			}
			if len(gotLines) != len(wantLines) {
				t.Fatalf("%s: %d lines, want %d", path, len(gotLines), len(wantLines))
			}
		})
	}
}

// replay runs a history and returns it with the answers it got.
func replay(t *testing.T, history string) string {
	var out, answers strings.Builder
	h := &historian{locks: make(map[string]*Lock)}
	inAnswers := false
	for lines := bufio.NewScanner(strings.NewReader(history)); lines.Scan(); {
		line := lines.Text()
		switch {
		case inAnswers && line != "":
			continue // replaced by what we got
		case line == "----":
			inAnswers = true
			fmt.Fprintf(&out, "----\n%s%v", answers.String(), h.tree)
			answers.Reset()
			continue
		case line != "" && !strings.HasPrefix(line, "#"):
			answer, err := h.run(strings.Fields(line))
			if err == nil {
				err = h.tree.Check(slices.Collect(maps.Values(h.locks)))
			}
			if err != nil {
				t.Fatalf("%s: %v\n%v", line, err, h.tree)
			}
			answers.WriteString(answer)
		}
		inAnswers = false
		out.WriteString(line + "\n")
	}
	return out.String()
}

type historian struct {
	tree  *Tree
	locks map[string]*Lock
	next  paging.BlockID
}

func (h *historian) run(words []string) (answer string, err error) {
	words = append(words, "", "")
	command, name := words[0], words[1]
	switch command {
	case "tree", "evict":
		n, err := strconv.Atoi(name)
		if err != nil {
			return "", err
		}
		if command == "evict" {
			return fmt.Sprintf("evicted %v\n", h.tree.Evict(n)), nil
		}
		var order Eviction
		if words[2] != "" {
			if err := order.UnmarshalText([]byte(words[2])); err != nil {
				return "", err
			}
		}
		*h = historian{tree: New(n, WithEviction(order)), locks: make(map[string]*Lock)}
		return "", nil
	case "match", "lock":
		salts := words[1:]
		if command == "lock" {
			salts = words[2:]
		}
		tokens, err := numbers(salts[1:])
		if err != nil {
			return "", err
		}
		m := h.tree.Match(strings.TrimPrefix(salts[0], "-"), tokens)
		answer = fmt.Sprintf("%d tokens: blocks %v", m.Tokens, m.Blocks())
		if m.Rows() > 0 {
			answer += fmt.Sprintf(" and %d rows of block %d", m.Rows(), m.Source)
		}
		if command == "lock" {
			h.locks[name] = h.tree.Lock(m)
		}
		return answer + "\n", nil
	}
	l := h.locks[name]
	if l == nil {
		return "", fmt.Errorf("no lock %q", name)
	}
	switch command {
	case "insert":
		tokens, err := numbers(words[2:])
		if err != nil {
			return "", err
		}
		blocks := make([]paging.BlockID, len(tokens)/h.tree.blockSize)
		for i := range blocks {
			blocks[i] = h.next
			h.next++
		}
		for _, d := range h.tree.Insert(l, tokens, blocks) {
			answer += fmt.Sprintf("block %d is a duplicate of %d\n", blocks[d.Index], d.Block)
		}
		return answer, nil
	case "share":
		h.locks[words[2]] = h.tree.Share(l)
		return "", nil
	case "unlock":
		h.tree.Unlock(l)
		delete(h.locks, name)
		return "", nil
	}
	return "", fmt.Errorf("no command %q", command)
}

func numbers(words []string) ([]int32, error) {
	var tokens []int32
	for _, word := range words {
		if word == "" {
			continue
		}
		n, err := strconv.ParseInt(word, 10, 32)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, int32(n))
	}
	return tokens, nil
}
