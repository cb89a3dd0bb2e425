// Package router stands in front of several replicas that speak the OpenAI API and sends
// each request to the one that will serve it with the least work.
//
// A request's way through it:
//
//  1. The body is read once, up to a bound, and parsed once: model, prompt, stream, user,
//     cache_salt. What the router must not understand it does not: the replica gets the
//     same bytes.
//  2. The prompt becomes chained hashes of its blocks: of token ids where the request
//     brings them or the router has the replicas' tokenizer (and for conversations their
//     chat template), of bytes otherwise. A text is read no further than its blocks count,
//     and what it shares with earlier ones is tokenized once.
//  3. The registry takes stock, in one critical section: which replicas are ready and serve
//     the model, how busy they are, and how much of the prompt each has. The policy chooses, and the
//     choice is booked before the next request looks: load and prefix count from that
//     moment on, so the second request of a burst follows the first.
//  4. The answer is passed on as it comes, event by event. Until the first byte a refused
//     connection, a 502, a 503, a 429 (its queue is full, another one's may not be) and a
//     replica that goes down send the request to another replica; after that a replica
//     that dies ends the stream with an error event.
//  5. Whatever happened makes one row in the ledger: who was chosen among whom and why,
//     what was predicted and what was delivered, and for each token that was computed the
//     reason why it was not reused.
//
// What a replica holds is known from its own block events ([KnowledgeExact]): a follower
// takes its snapshot, then applies what is stored and removed, in order, and takes the
// snapshot anew whenever the numbers leave a hole or the digests differ. One bounded index
// holds all replicas, so that one walk along a prompt answers for every one of them. A
// replica that sends no events is guessed at from the requests it was sent
// ([KnowledgeGuessed]). Either way what is on its way counts as there.
//
// Nothing of this is shared between routers: each follows the replicas itself, so any
// number of them may stand side by side. They may also stand one behind the other: each
// adds its name to the requests that it sends on, and refuses those that come round.
//
// Which models a replica serves it is asked before it becomes ready, and now and then; one
// that does not say gets requests for any.
//
// The router imports no model, no cache and no engine: any OpenAI-compatible server can be
// a replica. Of a tailor replica it also reads two headers: x-tailor-epoch changes when the
// process or its cache is a new one, and all that was known of the old one is forgotten;
// x-tailor-cache says what was delivered. Of others the ledger takes cached_tokens from
// the answer's usage; nothing else is read from an answer, and the index never learns from
// one.
package router
