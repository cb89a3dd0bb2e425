package policy

import "testing"

// The lesson's script: 16 servers, 300 requests, a request is a hit if its server has
// seen its prefix before. Its figures: random routing 224 hits with 5 prefixes and 108
// with 20; hash(prefix) mod 16 295 and 280, all but each prefix's first request.
func TestLessonFigures(t *testing.T) {
	for _, lesson := range []struct {
		file                string
		prefixes            int
		randomHits, hitHits int
	}{
		{"workloads/lesson-5.jsonl", 5, 224, 295},
		{"workloads/lesson-20.jsonl", 20, 108, 280},
	} {
		rows := jsonLines[lessonRow](t, sharedFile(t, lesson.file))
		if len(rows) != 300 {
			t.Fatalf("%s: %d requests", lesson.file, len(rows))
		}
		type seen struct {
			server any
			prefix int
		}
		recorded, hashed := map[seen]bool{}, map[seen]bool{}
		homes := map[int]map[string]bool{}
		randomHits, hashHits := 0, 0
		p := NewPrefixHash(defaultDepth)
		for i, row := range rows {
			at := seen{row.RandomServer, row.Prefix}
			if recorded[at] {
				randomHits++
			}
			recorded[at] = true

			d := choose(t, p, prompt(row.Prefix, row.PrefixTokens, i, row.SuffixTokens), fleet(16))
			at = seen{d.Replica, row.Prefix}
			if hashed[at] {
				hashHits++
			}
			hashed[at] = true
			if homes[row.Prefix] == nil {
				homes[row.Prefix] = map[string]bool{}
			}
			homes[row.Prefix][d.Replica] = true
		}
		if randomHits != lesson.randomHits || hashHits != lesson.hitHits {
			t.Errorf("%s: random %d hits, hash %d; the lesson says %d and %d",
				lesson.file, randomHits, hashHits, lesson.randomHits, lesson.hitHits)
		}
		if len(homes) != lesson.prefixes {
			t.Errorf("%s: %d prefixes", lesson.file, len(homes))
		}
		for prefix, replicas := range homes {
			if len(replicas) != 1 {
				t.Errorf("%s: prefix %d went to %d replicas", lesson.file, prefix, len(replicas))
			}
		}
	}
}
