// Package router stands in front of several replicas that speak the OpenAI API and sends
// each request to the one that will serve it with the least work.
//
// A request's way through it:
//
//  1. The body is read once, up to a bound, and parsed once: model, prompt, stream, user,
//     cache_salt. What the router must not understand it does not: the replica gets the
//     same bytes.
//  2. The prompt becomes chained hashes of its blocks: of token ids where the request
//     brings them or the router has the replicas' tokenizer, of bytes otherwise.
//  3. The registry takes stock, in one critical section: which replicas are ready, how
//     busy they are, and how much of the prompt each is expected to hold by the router's
//     own index. The policy chooses, and the choice is booked before the next request
//     looks: load and prefix count from that moment on, so the second request of a burst
//     follows the first.
//  4. The answer is passed on as it comes, event by event, and never read for its content.
//     Until the first byte a refused connection, a 502 or a 503 sends the request to
//     another replica; after that a replica that dies ends the stream with an error event.
//  5. Whatever happened makes one row in the ledger.
//
// The router imports no model, no cache and no engine: any OpenAI-compatible server can be
// a replica. Of a tailor replica it also reads two headers: x-tailor-epoch changes when the
// process or its cache is a new one, and the index forgets what it knew of the old one.
package router
