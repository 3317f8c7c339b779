package mcp

import "context"

// noBudget says why there are no children.
func noBudget() error {
	return say("the operator's policy gives no budget for children: none can be made")
}

func (s *server) birdSpawn(context.Context, *birdArgs) (string, error) { return "", noBudget() }

func (s *server) birdChildren(context.Context, *birdArgs) (string, error) { return "", noBudget() }

func (s *server) birdDestroyChild(context.Context, *birdArgs) (string, error) { return "", noBudget() }
