package ec2sim_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/berth-dev/berth/provisioner/aws/ec2sim"
)

func receive(t *testing.T, client *sqs.Client, url *string, wait int32) []sqstypes.Message {
	t.Helper()
	out, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
		QueueUrl: url, MaxNumberOfMessages: 10, VisibilityTimeout: 2, WaitTimeSeconds: wait,
		MessageSystemAttributeNames: []sqstypes.MessageSystemAttributeName{sqstypes.MessageSystemAttributeNameApproximateReceiveCount},
	})
	require.NoError(t, err)
	return out.Messages
}

func TestWI25MissingQueue(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	_, err := sqs.NewFromConfig(s.config(1)).GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("none")})
	api, ok := errors.AsType[smithy.APIError](err)
	require.True(t, ok)
	require.Contains(t, []string{"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"}, api.ErrorCode())
	_, missing := errors.AsType[*sqstypes.QueueDoesNotExist](err)
	require.True(t, missing || api.ErrorCode() != "")
}

func TestQueueHidesWhatWasReceivedUntilItIsDeleted(t *testing.T) {
	t.Parallel()
	s := newSim(t, func(o *ec2sim.Options) { o.Clock = nil }) // the real clock: the long poll is real
	client := sqs.NewFromConfig(s.config(1))
	require.False(t, s.Send("q", "lost"))
	s.CreateQueue("q")
	found, err := client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("q")})
	require.NoError(t, err)
	url := found.QueueUrl
	require.Empty(t, receive(t, client, url, 0))
	_, err = client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("one <&> \"body\"")})
	require.NoError(t, err)
	first := receive(t, client, url, 0)
	require.Len(t, first, 1)
	require.Equal(t, "one <&> \"body\"", *first[0].Body, "the SDK has checked the digest of the body")
	require.Empty(t, receive(t, client, url, 0), "it is hidden")
	again := receive(t, client, url, 20)
	require.Len(t, again, 1, "the long poll ends when it shows again")
	require.Equal(t, "2", again[0].Attributes["ApproximateReceiveCount"])
	require.NotEqual(t, *first[0].ReceiptHandle, *again[0].ReceiptHandle)
	_, err = client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: first[0].ReceiptHandle})
	require.NoError(t, err)
	require.Equal(t, 1, s.QueueLength("q"), "an old handle deletes nothing")
	_, err = client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: again[0].ReceiptHandle})
	require.NoError(t, err)
	require.Zero(t, s.QueueLength("q"))

	got := make(chan int)
	go func() { got <- len(receive(t, client, url, 20)) }()
	require.Eventually(t, func() bool { return s.Send("q", "two") }, time.Second, time.Millisecond)
	require.Equal(t, 1, <-got, "a message ends the long poll at once")
	s.DeleteQueue("q")
	require.Zero(t, s.QueueLength("q"))
}
