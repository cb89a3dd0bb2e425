package sample

import (
	"fmt"
	"math"
)

// Params says how a request's tokens are chosen. Names and ranges are those of the
// OpenAI API and of vLLM. The zero TopP is refused rather than read as "off": the API's
// range is (0,1], and whoever parses a request knows absent from zero. The zero values
// of the other fields change nothing.
type Params struct {
	// Temperature divides the logits, 0 to 2. 0 is greedy: the highest logit, the
	// lowest id among equals; MinP, TopK, TopP and Seed then change nothing.
	Temperature float64
	// MinP drops the tokens less than MinP times as likely as the likeliest, 0 to 1.
	MinP float64
	// TopK keeps the k most likely tokens; 0 or -1 keeps all.
	TopK int
	// TopP keeps the fewest most likely tokens that together hold at least this share
	// of the probability left after MinP and TopK; in (0,1], 1 keeps all.
	TopP float64
	// Seed makes the choice repeatable. nil means that the caller has none: whoever
	// accepts the request draws one, once. Of several choices for one prompt, choice i
	// takes Seed + i, so that each can be had again alone.
	Seed *int64

	// RepetitionPenalty divides the positive and multiplies the negative logits of the
	// tokens of prompt and output; above 0, and 0 stands for 1: none.
	RepetitionPenalty float64
	// FrequencyPenalty is subtracted from a token's logit for each time it is in the
	// output, PresencePenalty once if it is; -2 to 2.
	FrequencyPenalty float64
	PresencePenalty  float64

	// LogitBias is added to the logits of these tokens, -100 to 100.
	LogitBias map[int32]float32
	// Allowed are the only tokens that may be chosen; nil: all.
	Allowed []int32
	// BadWords are token sequences that the output must not hold: the last token of
	// one is never chosen right after the others.
	BadWords [][]int32
}

// A FieldError names the field of Params that is out of range, as the API spells it.
type FieldError struct {
	Field string // "temperature", "top_k", ...
	Value any
	Want  string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s is %v, want %s", e.Field, e.Value, e.Want)
}

// MaxBias bounds LogitBias on both sides.
const MaxBias = 100

// Validate reports the first field that is out of range as a *FieldError.
func (p *Params) Validate() error {
	// Conditions are written so that NaN fails them.
	if !(p.Temperature >= 0 && p.Temperature <= 2) {
		return &FieldError{"temperature", p.Temperature, "0 to 2"}
	}
	if !(p.MinP >= 0 && p.MinP <= 1) {
		return &FieldError{"min_p", p.MinP, "0 to 1"}
	}
	if p.TopK < -1 {
		return &FieldError{"top_k", p.TopK, "a count, or 0 or -1 for all"}
	}
	if !(p.TopP > 0 && p.TopP <= 1) {
		return &FieldError{"top_p", p.TopP, "above 0, at most 1"}
	}
	if !(p.RepetitionPenalty >= 0 && p.RepetitionPenalty <= math.MaxFloat32) {
		return &FieldError{"repetition_penalty", p.RepetitionPenalty, "above 0"}
	}
	if !(math.Abs(p.FrequencyPenalty) <= 2) {
		return &FieldError{"frequency_penalty", p.FrequencyPenalty, "-2 to 2"}
	}
	if !(math.Abs(p.PresencePenalty) <= 2) {
		return &FieldError{"presence_penalty", p.PresencePenalty, "-2 to 2"}
	}
	for id, bias := range p.LogitBias {
		if !(math.Abs(float64(bias)) <= MaxBias) {
			return &FieldError{"logit_bias", fmt.Sprintf("%v for token %d", bias, id), "-100 to 100"}
		}
	}
	if p.Allowed != nil && len(p.Allowed) == 0 {
		return &FieldError{"allowed_token_ids", "[]", "a token or more"}
	}
	for i, word := range p.BadWords {
		if len(word) == 0 {
			return &FieldError{"bad_words", fmt.Sprintf("empty at index %d", i), "a token or more"}
		}
	}
	return nil
}

// ValidateIDs reports the first token id that a vocabulary of that size does not have, as
// a *FieldError. A sampler passes such ids over.
func (p *Params) ValidateIDs(vocab int) error {
	wrong := func(id int32) bool { return id < 0 || int(id) >= vocab }
	refuse := func(field string, id int32) error {
		return &FieldError{field, fmt.Sprintf("token %d", id), fmt.Sprintf("ids of 0 to %d", vocab-1)}
	}
	lowest, found := int32(0), false
	for id := range p.LogitBias { // in no order: of several the lowest is named
		if wrong(id) && (!found || id < lowest) {
			lowest, found = id, true
		}
	}
	if found {
		return refuse("logit_bias", lowest)
	}
	for _, id := range p.Allowed {
		if wrong(id) {
			return refuse("allowed_token_ids", id)
		}
	}
	for _, word := range p.BadWords {
		for _, id := range word {
			if wrong(id) {
				return refuse("bad_words", id)
			}
		}
	}
	return nil
}
