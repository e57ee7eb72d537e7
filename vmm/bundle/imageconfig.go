package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"flash/store"
)

// ImageConfig is what a container image says about running it, so that a command can be given the image's environment.
// It is kept in the bundle's snapshot, as the image "image_config", and inside the guest in ImageConfigPath.
type ImageConfig struct {
	Env        []string `json:"env,omitempty"`
	WorkingDir string   `json:"working_dir,omitempty"`
	User       string   `json:"user,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
}

// ImageConfigPath is where the guest finds its image's configuration, as JSON.
const ImageConfigPath = "etc/flash/image.json"

// imageConfigName is the snapshot's image with the configuration; a fact is too short for some.
const imageConfigName = "image_config"

// ReadImageConfig gives the configuration of an imported bundle. Other bundles have none, which is the zero value.
func ReadImageConfig(ctx context.Context, sn *store.Snapshot) (ImageConfig, error) {
	var c ImageConfig
	im, err := sn.Image(ctx, imageConfigName)
	if errors.Is(err, store.ErrNotFound) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("image configuration: %w", err)
	}
	text, err := im.ReadAll(ctx)
	if err != nil {
		return c, fmt.Errorf("image configuration: %w", err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("image configuration: %w", err)
	}
	return c, nil
}

// encodeImageConfig picks what is kept of a container's configuration.
func encodeImageConfig(c v1.Config) ([]byte, error) {
	text, err := json.MarshalIndent(ImageConfig{
		Env: c.Env, WorkingDir: c.WorkingDir, User: c.User, Entrypoint: c.Entrypoint, Cmd: c.Cmd,
	}, "", "  ")
	return append(text, '\n'), err
}
