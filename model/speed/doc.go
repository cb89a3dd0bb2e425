// Package speed measures how fast a model runs on this machine and how far that is from
// what the machine can do, which it measures too: a model's speed in tokens per second
// says little without it.
//
// Two limits hold for any program. Arithmetic: a loop that only multiplies and adds,
// without memory, is the most that a prefill can reach. Bandwidth: a loop that only reads
// memory in huge pages is the most that a decode can reach, since every step reads every
// weight. A result's share is the time that the tighter of the two limits allows, over the
// time that was taken.
package speed
