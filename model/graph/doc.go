// Package graph computes GPT-2's forward pass as gorgonia expression graphs: the whole
// sequence at once, nothing cached, no code shared with package model. It is the oracle
// that `tailor verify` and the tests hold package model against, so it is written from
// the mathematics (Radford et al. 2019, "Language Models are Unsupervised Multitask
// Learners", section 2.3) and prefers the plain formulation to the fast one.
//
// With T tokens, width W, head size D and rows as positions:
//
//	x    = wte[tokens] + wpe[0..T)                                     [T,W]
//	norm(x; g, b)  = (x - mean) / sqrt(var + eps) * g + b              row by row
//	head_h(a)      = softmax(mask(s * q kᵀ)) v Wo_h                     [T,W]
//	                 with q = a Wq_h + bq_h; k and v alike             [T,D]
//	x    = x + sum over h of head_h(norm(x; ln_1)) + bo                each layer
//	x    = x + act(norm(x; ln_2) Wf + bf) Wp + bp                      each layer
//	logits = norm(x; ln_f) headᵀ                                       [T,V]
//
// Summing head_h over the heads, each with its own rows of c_proj, equals
// concatenating the heads and multiplying once.
//
// Every layer is a graph of its own, built, run and dropped before the next. gorgonia
// keeps the value of every node until its graph goes, so one graph for all layers would
// hold Layers*Heads score matrices of [T,T]; this way the memory does not grow with depth.
//
// Two of gorgonia's habits shape the code. Attention has an operation of its own, since
// gorgonia 0.9.18's SoftMax subtracts a maximum that leaves out the row's first element:
// the row (200, 0) after (0, 0) comes out as (NaN, 0). And nodes of equal 32-bit hashes
// are taken for the same expression, so every graph is checked for collisions before it
// runs. Matrix products go through the BLAS that package tensor uses, gonum's unless the
// program has chosen another with tensor.Use.
package graph
