package graph

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// builder assembles one expression graph. The first error sticks and every operation
// after it is skipped, so formulas need no checks in between.
//
// Invariants:
//   - a graph that runs has no two nodes of one hash, and no operation was answered with
//     the node of another: gorgonia tells nodes apart by 32-bit hashes alone. The
//     formulas state no expression twice, so such a meeting is chance: errCollision.
//   - inputs are named with the salt, so another salt gives every node another hash.
type builder struct {
	graph *gorgonia.ExprGraph
	salt  int
	kept  map[*gorgonia.Node]bool // the operations' and inputs' nodes
	err   error
}

// maxSalts bounds the attempts at a graph without collisions. A layer has some hundred
// nodes, so one attempt in some hundred thousand collides by chance.
const maxSalts = 8

var errCollision = errors.New("graph: two expressions have the same hash")

// run builds a graph, runs it and returns its last node's value.
func run(build func(*builder) *gorgonia.Node) (*tensor.Dense, error) {
	var err error
	for salt := range maxSalts {
		b := &builder{graph: gorgonia.NewGraph(), salt: salt, kept: make(map[*gorgonia.Node]bool)}
		out := build(b)
		if b.checkHashes(); b.err == nil {
			return b.evaluate(out)
		}
		if err = b.err; !errors.Is(err, errCollision) {
			return nil, err
		}
	}
	return nil, err
}

// checkHashes looks at all nodes: gorgonia adds some of its own, in a broadcast say.
func (b *builder) checkHashes() {
	seen := make(map[uint32]bool)
	for _, n := range b.graph.AllNodes() {
		if hash := n.Hashcode(); seen[hash] && b.err == nil {
			b.err = fmt.Errorf("%w: %08x", errCollision, hash)
		} else {
			seen[hash] = true
		}
	}
}

func (b *builder) evaluate(out *gorgonia.Node) (*tensor.Dense, error) {
	program, locations, err := gorgonia.Compile(b.graph)
	if err != nil {
		return nil, fmt.Errorf("graph: compiling: %w", err)
	}
	vm := gorgonia.NewTapeMachine(b.graph, gorgonia.WithPrecompiled(program, locations))
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		return nil, fmt.Errorf("graph: running: %w", err)
	}
	value, ok := out.Value().(*tensor.Dense)
	if !ok {
		return nil, fmt.Errorf("graph: the result is a %T", out.Value())
	}
	return value, nil
}

// keep records an operation's node or error.
func (b *builder) keep(n *gorgonia.Node, err error) *gorgonia.Node {
	if err != nil {
		b.err = err
		return nil
	}
	if b.kept[n] {
		b.err = fmt.Errorf("%w: %08x", errCollision, n.Hashcode())
	}
	b.kept[n] = true
	return n
}

// input is a leaf of the graph. The graph reads value and does not change it.
func (b *builder) input(name string, value *tensor.Dense) *gorgonia.Node {
	if b.err != nil {
		return nil
	}
	name = fmt.Sprintf("%s#%d", name, b.salt)
	return b.keep(gorgonia.NodeFromAny(b.graph, value, gorgonia.WithName(name)), nil)
}

func (b *builder) indices(name string, ids []int) *gorgonia.Node {
	return b.input(name, tensor.New(tensor.WithShape(len(ids)), tensor.WithBacking(ids)))
}

func (b *builder) constant(v float32) *gorgonia.Node { return gorgonia.NewConstant(v) }

func (b *builder) unary(op func(*gorgonia.Node) (*gorgonia.Node, error), x *gorgonia.Node) *gorgonia.Node {
	if b.err != nil {
		return nil
	}
	return b.keep(op(x))
}

func (b *builder) binary(op func(_, _ *gorgonia.Node) (*gorgonia.Node, error), x, y *gorgonia.Node) *gorgonia.Node {
	if b.err != nil {
		return nil
	}
	return b.keep(op(x, y))
}

// apply is an operation of this package.
func (b *builder) apply(k kernel, x *gorgonia.Node) *gorgonia.Node {
	return b.unary(func(n *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.ApplyOp(operation{k}, n) }, x)
}

// rows takes the rows of the matrix x that ids name.
func (b *builder) rows(x, ids *gorgonia.Node) *gorgonia.Node {
	return b.binary(func(x, ids *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.ByIndices(x, ids, 0) }, x, ids)
}

func (b *builder) transpose(x *gorgonia.Node) *gorgonia.Node {
	return b.unary(func(n *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Transpose(n) }, x)
}

// mean is every row's mean: [T,N] to [T].
func (b *builder) mean(x *gorgonia.Node) *gorgonia.Node {
	return b.unary(func(n *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Mean(n, 1) }, x)
}

// broadcast is an element-wise operation of gorgonia that repeats its second operand.
type broadcast func(x, y *gorgonia.Node, _, axes []byte) (*gorgonia.Node, error)

// eachRow applies op to every row of x, [T,N], and the row y, [1,N].
func (b *builder) eachRow(op broadcast, x, y *gorgonia.Node) *gorgonia.Node {
	return b.binary(func(x, y *gorgonia.Node) (*gorgonia.Node, error) { return op(x, y, nil, []byte{0}) }, x, y)
}

// eachColumn applies op to every column of x, [T,N], and the column y, [T].
func (b *builder) eachColumn(op broadcast, x, y *gorgonia.Node) *gorgonia.Node {
	return b.binary(func(x, y *gorgonia.Node) (*gorgonia.Node, error) { return op(x, y, nil, []byte{1}) }, x, y)
}

// mul is the product of matrices; the others go element by element, where y may be a
// constant.
func (b *builder) mul(x, y *gorgonia.Node) *gorgonia.Node { return b.binary(gorgonia.Mul, x, y) }
func (b *builder) add(x, y *gorgonia.Node) *gorgonia.Node { return b.binary(gorgonia.Add, x, y) }
func (b *builder) times(x, y *gorgonia.Node) *gorgonia.Node {
	return b.binary(gorgonia.HadamardProd, x, y)
}
