package workload

import (
	"fmt"
	"strconv"
	"strings"
)

// setting is a number that a workload is made from, under the name it has in reports and
// errors.
type setting struct {
	name       string
	value, min int
}

// check returns an error that names the first setting below its minimum.
func check(settings []setting) error {
	for _, s := range settings {
		if s.value < s.min {
			return fmt.Errorf("%s is %d, want %d or more", s.name, s.value, s.min)
		}
	}
	return nil
}

// fits checks that lengths, none negative, have room together in the context.
func fits(context int, lengths ...setting) error {
	var names []string
	room, ok := context, true
	for _, l := range lengths {
		names = append(names, fmt.Sprintf("%s %d", l.name, l.value))
		ok = ok && l.value <= room // subtracted, not added up: a length may be anything that fits an int
		room -= l.value
	}
	if !ok {
		return fmt.Errorf("%s do not fit together in context %d", strings.Join(names, " + "), context)
	}
	return nil
}

// distinct checks that there are enough token ids for so many texts to part at their first one.
func (t Target) distinct(name string, texts int) error {
	if texts > t.ids() {
		return fmt.Errorf("%s is %d: their first tokens must differ, and only %d of vocab %d ids may be used", name, texts, t.ids(), t.Vocab)
	}
	return nil
}

func parameters(settings []setting) []Parameter {
	list := make([]Parameter, len(settings))
	for i, s := range settings {
		list[i] = Parameter{Name: s.name, Value: strconv.Itoa(s.value)}
	}
	return list
}
