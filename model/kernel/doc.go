// Package kernel holds the loops that the time goes into: matrix multiplication on
// packed weights, attention that reads keys and values straight from their blocks,
// layer norm, GELU and softmax, and the team of threads that runs them.
//
// # One order of summation
//
// Every output element is computed by one fixed sequence of rounded operations that
// depends on the model and on the element's own row and position alone: not on how many
// rows share the batch, where the row stands in it, how a prompt is cut into chunks,
// which blocks hold the keys, how large the blocks are, or how many threads there are.
// So a result taken from a cache has the same bits as one computed again. In detail:
//
//   - a product of a row with a weight column is one chain over k in ascending order
//     that starts from the bias: acc = a[k]*w[k] + acc. Weights kept in 16 bits are
//     widened first, which is exact, so they change nothing;
//   - but where rows are rounded to bfloat16 too ([BFloat16Pairs]), each pair of k adds
//     its odd product first, then its even one: acc = a[1]*w[1] + acc,
//     acc = a[0]*w[0] + acc, acc = a[3]*w[3] + acc, and so on;
//   - and where AMX multiplies them, the even and the odd products of every 32 k, or of what
//     is left of them, are two chains that start from 0; even and odd are added up, and that
//     is added to the result so far, which starts from the bias;
//   - a score is one chain over the head dimension that starts from 0, then scaled;
//   - keys and values that are kept in bfloat16 are rounded when they are stored, those of
//     the rows at hand too, and widened again, exactly, on the way to the multiplication:
//     scores and weighted values have the order and the bits of float32 that was rounded
//     so. Queries and weights are not rounded;
//   - the sum of a softmax has [lanes] partial sums, position t in lane t%lanes, each
//     in ascending order, folded in halves: lane i takes lane i+8, then i+4, i+2, i+1;
//   - a weighted value is one chain over the positions in ascending order from 0, and
//     is divided by the softmax's sum at its end;
//   - the mean and the variance of a layer norm have the softmax's lanes, over columns.
//
// # Twins
//
// Each loop exists as a scalar Go loop, which is its definition, and as vector assembly
// for amd64 (AVX-512 and AVX2 with FMA) and arm64 (NEON) in the same order. The assembly
// fuses multiplication and addition; the scalar loop rounds in between, on every
// architecture, since an explicit conversion forbids the compiler to fuse. So the two
// differ in last bits, while AVX-512, AVX2 and NEON agree exactly. The build tag purego
// leaves the assembly out. What NEON is worth was never measured: its tests have run in
// an emulator only.
//
// Pairs of bfloat16 are multiplied by the instruction of AVX512_BF16, or by the scalar
// loop, to the same bits: a product of two bfloat16 is exact in float32, fused or not.
// Only denormals differ, which the instruction counts as zero, and sums that overflow.
// AVX-512 without that instruction, AVX2 and NEON have nothing to gain from rounded rows,
// and widen.
//
// # AMX
//
// Where the processor has AMX, and Linux permits its tiles, they multiply pairs in place of
// AVX512_BF16, in their own order. Up to four rows, which a decode has, are multiplied by
// AVX-512 in exactly that order: its products are fused, denormals are set to count as zero
// for the time of the loop, and infinities and NaN come out alike, but for the bits that
// tell one NaN from another. The scalar loop that defines it, groupsScalar, has those bits
// too. So a prompt and a decode agree there as they do everywhere, while the results of a
// processor with AMX are not those of one without, and GODEBUG=cpu.amxtile=off gives them
// up.
//
// The tiles were developed on a processor without them. Their bytes are checked by a
// disassembler, and the tests have run in an emulator of a processor with AMX, under Linux;
// nobody has run this code on such a processor, or measured what it is worth there. The
// loop on AVX-512 runs in the tests of every processor that has it.
//
// # Memory
//
// Attention reads keys and values from their blocks and keeps one row of scores for each
// of a thread's queries, up to six: its memory grows with the length, not its square.
package kernel
