package weights

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

var (
	// ErrIncomplete: the folder lacks a file that a checkpoint must have.
	ErrIncomplete = errors.New("incomplete checkpoint folder")
	// ErrMalformed: a file contradicts itself or its format.
	ErrMalformed = errors.New("malformed checkpoint file")
	// ErrUnsupported: a tensor has a type that is not read.
	ErrUnsupported = errors.New("unsupported tensor")
)

const (
	configFile = "config.json"
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
)

//go:embed bundled/model.safetensors bundled/config.json bundled/generation_config.json
//go:embed bundled/tokenizer.json bundled/tokenizer_config.json bundled/MODEL_CARD.md
var bundled embed.FS

// Folder is a checkpoint folder. It holds no open file and may be used by several
// goroutines.
type Folder struct {
	name string
	fsys fs.FS
}

// Open returns the checkpoint folder dir. It looks only whether the files are there;
// faults inside them are reported by who reads them.
func Open(dir string) (*Folder, error) {
	// The name of "." is the name of the folder that it stands for.
	full, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(full)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%w: %s is a file, not a folder", ErrIncomplete, dir)
	}
	f := &Folder{name: filepath.Base(full), fsys: os.DirFS(full)}
	if !f.has(configFile) {
		return nil, fmt.Errorf("%w: %s has no %s", ErrIncomplete, dir, configFile)
	}
	if !f.has(singleFile) && !f.has(indexFile) {
		hint := ""
		if f.has("pytorch_model.bin") {
			hint = "; pytorch_model.bin is not read, since loading a pickle runs its code"
		}
		return nil, fmt.Errorf("%w: %s has neither %s nor %s%s", ErrIncomplete, dir, singleFile, indexFile, hint)
	}
	return f, nil
}

// Bundled returns the model that is part of the program.
func Bundled() *Folder {
	sub, err := fs.Sub(bundled, "bundled")
	if err != nil {
		panic(err) // only for an invalid path, and this one is a constant
	}
	return &Folder{name: "tailor-4m", fsys: sub}
}

func (f *Folder) has(name string) bool {
	_, err := fs.Stat(f.fsys, name)
	return err == nil
}

// Name is the last element of the folder's path.
func (f *Folder) Name() string { return f.name }

// FS gives access to the folder's files.
func (f *Folder) FS() fs.FS { return f.fsys }
