package main

import (
	"encoding/json"
	"fmt"
)

// jobFile is where the initrd has the job.
const jobFile = "job.json"

// job is what init is to run.
type job struct {
	Command []string `json:"command"`
	Dir     string   `json:"dir"`
	Env     []string `json:"env"`
}

func (j job) encode() ([]byte, error) { return json.Marshal(j) }

func decodeJob(data []byte) (job, error) {
	var j job
	if err := json.Unmarshal(data, &j); err != nil {
		return job{}, fmt.Errorf("the job: %w", err)
	}
	if len(j.Command) == 0 || j.Dir == "" {
		return job{}, fmt.Errorf("the job names no command or no folder: %.200s", data)
	}
	return j, nil
}

// Exit statuses of our own.
const (
	exitTimeout = 124
	exitFailed  = 125
)
