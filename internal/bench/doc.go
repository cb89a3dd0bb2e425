// Package bench replays a workload against running servers and says what it cost: what was
// computed and what reused, how long it took, where reuse was lost, and whether routing by
// prefix would pay for this traffic.
//
// # A run
//
// Each policy with each capacity gets a cluster of its own, with cold caches, and the same
// requests: what they say is settled by the workload, its seed and the model's own greedy
// answers, and a hash over all bodies tells where it was not the same after all. A run
//
//  1. reads the counters of replicas and router,
//  2. sends every request, streamed, when its arrival says so and the answer that it goes on
//     from is there,
//  3. reads the counters again.
//
// What was computed and reused is what the engines counted; where nobody counts, as on a
// server that is not Tailor's, it is what the answers' usage says; and where that does not
// say it either, it is unknown ([Run.Unknown]) and appears nowhere. The books must balance:
// what was sent is what was computed and what was reused, and every computed token has its
// cause in the router's accounts. [Run.Problems] says where they do not.
//
// # Time
//
// In an open loop requests are due at times of their own, and TTFT and E2E count from then:
// if a request is sent late because the client was busy or because there were too many in
// flight, its user has waited, and leaving that out would make an overloaded server look
// well ([Run.TTFTSent] leaves it out). In a closed loop a request is due when a client is
// free for it. A request that waits for an answer is due when that is there and its user
// has thought, but no earlier than its own time.
//
// Replays are exact where they can be: with one client, requests follow one another in the
// workload's order, and their counts depend on nothing else.
//
// # Noise
//
// A difference in computed tokens counts if it is at least 1 % of the prompt tokens and, if
// there are several runs, their ranges do not overlap; of times, if the ranges do not
// overlap, or with single runs if it is at least 10 %. All else is called noise. [Judge]
// derives the verdict from the report alone.
package bench
