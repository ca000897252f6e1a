"""Training with the Trainer of transformers: padded batches, accumulation, evaluations, checkpoints; broken off and resumed."""

import copy
import os
import pickle
import sys
from pathlib import Path

import torch
from counting import StepCounts, leave_together
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import loadfactor_track as loadfactor

SAMPLES, BATCH = 50, 4
folder, tokens_seen, counts = Path(sys.argv[1]), *sys.argv[2:4]
Example = dict[str, torch.Tensor]


def make_examples() -> list[Example]:
    """Texts of several lengths."""
    random = torch.Generator().manual_seed(7)
    lengths = torch.randint(3, 30, (SAMPLES,), generator=random).tolist()
    return [{"input_ids": torch.randint(1, 50, (n,), generator=random), "labels": torch.tensor(n % 2)} for n in lengths]


def pad(examples: list[Example]) -> Example:
    """A batch as long as its longest text."""
    texts = torch.nn.utils.rnn.pad_sequence([example["input_ids"] for example in examples], batch_first=True)
    labels = torch.stack([example["labels"] for example in examples])
    return {"input_ids": texts, "attention_mask": (texts != 0).long(), "labels": labels}


class CountingTrainer(Trainer):
    """Counts what its model is given."""

    attempt = 0

    def training_step(self, model: torch.nn.Module, inputs: Example, *others: object) -> torch.Tensor:
        """A micro-batch."""
        loss = super().training_step(model, inputs, *others)
        mask = inputs["attention_mask"]
        counted = StepCounts(folder, self.attempt, int(os.environ.get("RANK", "0")))
        seen = {"tokens": int(mask.sum())} if tokens_seen == "non_padding" else {"padded_tokens": mask.numel()}
        counted.add(
            self.state.global_step + 1,
            self.accelerator.sync_gradients,
            samples=len(mask),
            flops=self.floating_point_ops(inputs),
            **seen,
        )
        return loss


def make_trainer(run: object, attempt: int, **limits: int) -> Trainer:
    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    arguments = TrainingArguments(
        output_dir=str(folder / "saved"),
        use_cpu=True,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=2,
        eval_strategy="steps",
        eval_steps=3,
        save_steps=3,
        logging_steps=1,
        include_num_input_tokens_seen=tokens_seen,
        report_to=[],
        disable_tqdm=True,
        **limits,
    )
    trainer = CountingTrainer(
        BertForSequenceClassification(config),
        arguments,
        train_dataset=make_examples(),
        eval_dataset=make_examples(),
        data_collator=pad,
        callbacks=[run.trainer_callback()],
    )
    trainer.attempt = attempt
    return trainer


with loadfactor.track(experiment="bert", job="bert", counts=counts) as run:
    make_trainer(run, 0, max_steps=5).train()
    resumed = make_trainer(run, 1, num_train_epochs=2)
    resumed.train(resume_from_checkpoint=str(folder / "saved" / "checkpoint-3"))
    resumed.evaluate()
for _ in range(2):
    StepCounts(folder, 1, int(os.environ.get("RANK", "0"))).say("epoch")

pickle.loads(pickle.dumps(copy.deepcopy(run.trainer_callback())))  # as Trainers hand them to processes that they start
leave_together()
