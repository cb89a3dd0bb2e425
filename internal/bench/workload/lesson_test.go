package workload

import (
	"bytes"
	"os"
	"testing"
)

// naiveReplay counts what servers with unbounded memory would compute, by comparing each
// prompt with every earlier one of its server, token by token.
func naiveReplay(w *Workload, server func(i int) int) (computed, hits int64) {
	seen := map[int][][]int32{}
	for i, r := range w.Requests {
		s, longest := server(i), 0
		for _, earlier := range seen[s] {
			n := 0
			for n < len(r.Tokens)-1 && n < len(earlier) && earlier[n] == r.Tokens[n] {
				n++
			}
			longest = max(longest, n)
		}
		if longest > 0 {
			hits++
		}
		computed += int64(len(r.Tokens) - longest)
		seen[s] = append(seen[s], r.Tokens)
	}
	return computed, hits
}

func TestLessonCountsWhatItsAuthorPublished(t *testing.T) {
	for _, prefixes := range []int{5, 20} {
		w, err := Lesson(prefixes)
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Requests) != 300 || w.Replicas != 16 {
			t.Fatalf("%d prefixes: %d requests on %d replicas, want 300 on 16", prefixes, len(w.Requests), w.Replicas)
		}
		for policy, server := range map[string]func(int) int{
			"recorded":    func(i int) int { return w.Requests[i].Placement },
			"prefix_hash": func(i int) int { return int(w.Requests[i].Tokens[0]) % 16 },
		} {
			computed, hits := naiveReplay(w, server)
			if want := w.Published[policy]; computed != want.Computed || hits != want.Hits {
				t.Errorf("%d prefixes, %s: %d computed, %d hits; published %d, %d",
					prefixes, policy, computed, hits, want.Computed, want.Hits)
			}
		}
	}
}

func TestLessonSuffixesPartAtTheirFirstToken(t *testing.T) {
	for _, prefixes := range []int{5, 20} {
		w, err := Lesson(prefixes)
		if err != nil {
			t.Fatal(err)
		}
		first := map[int32]int{}
		for i, r := range w.Requests {
			if j, taken := first[r.Tokens[500]]; taken {
				t.Errorf("%d prefixes: suffixes of requests %d and %d both start with token %d", prefixes, j, i, r.Tokens[500])
			}
			first[r.Tokens[500]] = i
			for at, id := range r.Tokens {
				if id < 0 || id >= 4095 {
					t.Fatalf("%d prefixes: request %d has token %d at %d, outside the bundled vocabulary", prefixes, i, id, at)
				}
			}
		}
	}
}

func TestLessonHasNoOtherSizes(t *testing.T) {
	if _, err := Lesson(7); err == nil {
		t.Error("Lesson(7): no error")
	}
}

// TestLessonFilesAreTheRecordedOnes compares the embedded rows with the recording itself.
func TestLessonFilesAreTheRecordedOnes(t *testing.T) {
	for _, name := range []string{"lesson-5.jsonl", "lesson-20.jsonl"} {
		want, err := os.ReadFile("../../../../shared/data/workloads/" + name)
		if err != nil {
			t.Skipf("the recording is not beside the project: %v", err)
		}
		got, err := lessonFiles.ReadFile("lesson/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from the recording", name)
		}
	}
}
