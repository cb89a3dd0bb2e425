package report

import (
	"fmt"
	"math"
	"testing"
)

type rgb [3]float64 // linear light

func parseColour(t *testing.T, hex string) (c rgb) {
	t.Helper()
	var v [3]int
	if _, err := fmt.Sscanf(hex, "#%02x%02x%02x", &v[0], &v[1], &v[2]); err != nil {
		t.Fatal(err)
	}
	for i := range c {
		s := float64(v[i]) / 255
		if s <= .04045 {
			c[i] = s / 12.92
		} else {
			c[i] = math.Pow((s+.055)/1.055, 2.4)
		}
	}
	return c
}

// contrast is WCAG 2's contrast ratio.
func contrast(a, b rgb) float64 {
	luminance := func(c rgb) float64 { return .2126*c[0] + .7152*c[1] + .0722*c[2] }
	x, y := luminance(a), luminance(b)
	return (max(x, y) + .05) / (min(x, y) + .05)
}

// vision is how colours look to people without one kind of cone, by Machado, Oliveira and
// Fernandes (2009), severity 1.
var vision = map[string][3]rgb{
	"full":         {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protanopia":   {{.152286, 1.052583, -.204868}, {.114503, .786281, .099216}, {-.003882, -.048116, 1.051998}},
	"deuteranopia": {{.367322, .860646, -.227968}, {.280085, .672501, .047413}, {-.011820, .042940, .968881}},
	"tritanopia":   {{1.255528, -.076749, -.178779}, {-.078411, .930809, .147602}, {.004733, .691367, .303900}},
}

// oklab gives a colour's place in Ottosson's OKLab space, where distances are what one sees.
func oklab(c rgb) (lab [3]float64) {
	lms := [3]rgb{{.4122214708, .5363325363, .0514459929}, {.2119034982, .6806995451, .1073969566}, {.0883024619, .2817188376, .6299787005}}
	var root rgb
	for i, row := range lms {
		root[i] = math.Cbrt(row[0]*c[0] + row[1]*c[1] + row[2]*c[2])
	}
	for i, row := range [3]rgb{{.2104542553, .7936177850, -.0040720468}, {1.9779984951, -2.4285922050, .4505937099}, {.0259040371, .7827717662, -.8086757660}} {
		lab[i] = row[0]*root[0] + row[1]*root[1] + row[2]*root[2]
	}
	return lab
}

func seen(c rgb, matrix [3]rgb) (out rgb) {
	for i, row := range matrix {
		out[i] = min(max(row[0]*c[0]+row[1]*c[1]+row[2]*c[2], 0), 1)
	}
	return out
}

func TestColoursCanBeSeen(t *testing.T) {
	for name, theme := range map[string]theme{"light": light, "dark": dark} {
		ground := parseColour(t, theme.ground)
		if c := contrast(ground, parseColour(t, theme.ink)); c < 7 {
			t.Errorf("%s: text has contrast %.1f", name, c)
		}
		if c := contrast(ground, parseColour(t, theme.soft)); c < 4.5 {
			t.Errorf("%s: soft text has contrast %.1f", name, c)
		}
		for _, colour := range theme.series {
			if c := contrast(ground, parseColour(t, colour)); c < 3 {
				t.Errorf("%s: %s has contrast %.2f", name, colour, c)
			}
		}
	}
}

// Two colours of a theme are at least .1 apart in OKLab to everybody. (A just noticeable
// difference is about .02.)
func TestColoursCanBeToldApart(t *testing.T) {
	for name, theme := range map[string]theme{"light": light, "dark": dark} {
		for eyes, matrix := range vision {
			for i, a := range theme.series {
				for _, b := range theme.series[i+1:] {
					x, y := oklab(seen(parseColour(t, a), matrix)), oklab(seen(parseColour(t, b), matrix))
					if d := math.Sqrt((x[0]-y[0])*(x[0]-y[0]) + (x[1]-y[1])*(x[1]-y[1]) + (x[2]-y[2])*(x[2]-y[2])); d < .1 {
						t.Errorf("%s, %s: %s and %s are %.3f apart", name, eyes, a, b, d)
					}
				}
			}
		}
	}
}
