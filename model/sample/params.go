package sample

import "fmt"

// Params says how a request's tokens are chosen. Names and ranges are those of the
// OpenAI API and of vLLM's top_k. The zero TopP is refused rather than read as "off":
// the API's range is (0,1], and whoever parses a request knows absent from zero.
type Params struct {
	// Temperature divides the logits, 0 to 2. 0 is greedy: the highest logit, the
	// lowest id among equals; TopK, TopP and Seed then change nothing.
	Temperature float64
	// TopK keeps the k most likely tokens; 0 or -1 keeps all.
	TopK int
	// TopP keeps the fewest most likely tokens that together hold at least this share
	// of the probability left after TopK; in (0,1], 1 keeps all.
	TopP float64
	// Seed makes the choice repeatable. nil means that the caller has none: whoever
	// accepts the request draws one, once.
	Seed *int64
}

// A FieldError names the field of Params that is out of range, as the API spells it.
type FieldError struct {
	Field string // "temperature", "top_k", "top_p"
	Value any
	Want  string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s is %v, want %s", e.Field, e.Value, e.Want)
}

// Validate reports the first field that is out of range as a *FieldError.
func (p *Params) Validate() error {
	// Conditions are written so that NaN fails them.
	if !(p.Temperature >= 0 && p.Temperature <= 2) {
		return &FieldError{"temperature", p.Temperature, "0 to 2"}
	}
	if p.TopK < -1 {
		return &FieldError{"top_k", p.TopK, "a count, or 0 or -1 for all"}
	}
	if !(p.TopP > 0 && p.TopP <= 1) {
		return &FieldError{"top_p", p.TopP, "above 0, at most 1"}
	}
	return nil
}
