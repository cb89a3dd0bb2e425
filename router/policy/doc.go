// Package policy decides which replica serves a request.
//
// A policy is a pure function: the same [Request] and the same replica states give the
// same [Decision], on this router or on another one. Nothing here reads a clock, keeps a
// counter or speaks HTTP: whoever calls brings the request's number ([Request.Seq], which
// makes turns and chance reproducible), what each replica is expected to have cached
// ([Replica.Cached]) and how busy it is ([Replica.Load]).
//
// A prompt reaches the policies as chained hashes of its blocks ([ChainTokens],
// [ChainBytes]): hash i stands for everything up to the end of block i, so two prompts
// share their first i+1 blocks exactly when hash i is equal. The hashes are 64 bits wide
// and not collision resistant against an attacker; a collision costs a wrong prediction,
// never a wrong answer, since the replica compares tokens.
//
// The policies, one file each:
//
//   - random, round_robin: what a plain load balancer does; the baselines.
//   - least_loaded: fewest tokens in flight, then fewest requests.
//   - power_of_two: the less loaded of two drawn.
//   - session: a session's own replica.
//   - prefix_hash: hash of the first D blocks modulo N, the textbook's sticky routing.
//   - consistent_hash: the same key on a ring, with bounded loads.
//   - rendezvous_hash: the replica of highest weight for the key.
//   - cache_aware: SGLang's rule, the cache or the balance.
//   - cost: Dynamo's rule, blocks to compute and blocks in use in one sum.
//   - prefix_affinity: the longest predicted prefix among replicas that are not busier
//     than the least loaded one by more than a margin. The default.
package policy
