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

func TestQueueDeletesInBatches(t *testing.T) {
	t.Parallel()
	s := newSim(t, nil)
	client := sqs.NewFromConfig(s.config(1))
	s.CreateQueue("q")
	for range 12 {
		require.True(t, s.Send("q", "body"))
	}
	found, err := client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("q")})
	require.NoError(t, err)
	got := receive(t, client, found.QueueUrl, 0)
	require.Len(t, got, 10, "at most ten at a time")
	require.Len(t, receive(t, client, found.QueueUrl, 0), 2)
	entry := func(id string, handle *string) sqstypes.DeleteMessageBatchRequestEntry {
		return sqstypes.DeleteMessageBatchRequestEntry{Id: &id, ReceiptHandle: handle}
	}
	remove := func(entries ...sqstypes.DeleteMessageBatchRequestEntry) (*sqs.DeleteMessageBatchOutput, error) {
		return client.DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: found.QueueUrl, Entries: entries})
	}
	out, err := remove(entry("a", got[0].ReceiptHandle), entry("b", aws.String("nonsense")), entry("c", got[1].ReceiptHandle))
	require.NoError(t, err)
	require.Len(t, out.Successful, 2)
	require.Len(t, out.Failed, 1)
	require.Equal(t, []string{"b", "ReceiptHandleIsInvalid"}, []string{*out.Failed[0].Id, *out.Failed[0].Code})
	require.Equal(t, 10, s.QueueLength("q"))
	_, err = remove(entry("a", got[0].ReceiptHandle))
	require.NoError(t, err, "a message that is gone is no error")
	require.Equal(t, 10, s.QueueLength("q"))

	_, err = remove([]sqstypes.DeleteMessageBatchRequestEntry{}...)
	require.ErrorContains(t, err, "EmptyBatchRequest")
	_, err = remove(entry("a", got[2].ReceiptHandle), entry("a", got[3].ReceiptHandle))
	require.ErrorContains(t, err, "BatchEntryIdsNotDistinct")
	var many []sqstypes.DeleteMessageBatchRequestEntry
	for i := range 11 {
		many = append(many, entry(string(rune('a'+i)), got[2].ReceiptHandle))
	}
	_, err = remove(many...)
	require.ErrorContains(t, err, "TooManyEntriesInBatchRequest")
	require.Equal(t, 10, s.QueueLength("q"))
	_, err = client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: found.QueueUrl, WaitTimeSeconds: 21})
	require.ErrorContains(t, err, "WaitTimeSeconds")
}
